"""Time episodes of several turns: `python benchmarks/turns.py > turns.json`.

The same episodes are played twice on the engine `vanilla`, once continuing its cache from turn to turn and once by
rounds, which process the episodes so far again. The calls alternate, so that a busy machine affects both alike, and the
ratios are those of CPU seconds in one run. The model is that of `benchmarks/workloads.py`, with random weights.

`prefilled` counts tokens that are processed and not sampled in the same step: the prompts (once for all samples of a
prompt in the first round), the observations, and by rounds also what was sampled before.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import Any

import attrs
import jax
import numpy as np
from flax import nnx
from step import machine
from workloads import WORKLOADS, register

from dovetail.config import load
from dovetail.host.episodes import Rounds, Tape
from dovetail.protocols import Sampling, Weights
from dovetail.step import keys

EOS = 0


@attrs.define
class Counted:
    """Passes calls on and counts the tokens that are prefilled; with `again` every round begins again."""

    engine: Any
    again: bool
    prefilled: int = 0

    def generate(self, tokens: Any, mask: Any, step_keys: Any, sampling: Sampling) -> Any:
        self.prefilled += int(np.sum(mask))
        return self.engine.generate(tokens, mask, step_keys, sampling)

    def turns(self, tokens: Any, mask: Any, *arguments: Any) -> Any:
        if self.again:
            return None
        self.prefilled += int(np.sum(mask))
        return CountedTurns(self, self.engine.turns(tokens, mask, *arguments))


@attrs.frozen
class CountedTurns:
    """Turns whose observations are counted, each with the token before it, which was sampled and not yet processed."""

    count: Counted
    turns: Any

    def first(self) -> Any:
        return self.turns.first()

    def next(self, rows: Any, observed: Any, step_keys: Any) -> Any:
        self.count.prefilled += sum(len(ids) + 1 for ids in observed)
        return self.turns.next(rows, observed, step_keys)


def agent(options: argparse.Namespace, step: int) -> Any:
    """Return observations of different lengths, and the end of each episode after one of the last turns."""
    rng = np.random.default_rng([0, step])
    last = rng.integers(max(1, options.turns - 2), options.turns + 1, options.prompts * options.samples)
    done = np.zeros(len(last), int)

    def then(rows: list[int], turns: Any, finish: Any) -> list[list[int] | None]:
        done[rows] += 1
        lengths = np.random.default_rng([step, done.max()]).integers(*options.observation, len(last), endpoint=True)
        return [None if done[row] >= last[row] else [1 + row % 7] * int(lengths[row]) for row in rows]

    return then


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of both ways, and their ratios."""
    config = load(None, [*WORKLOADS["W1"], *options.overrides])
    tokenizer = config.choice("train.tokenizer").bind().make(())
    model = config.choice("train.model").bind().make(tokenizer.vocab_size, rngs=nnx.Rngs(0), place=None)
    graphdef, trained, frozen = nnx.split(model, nnx.Param, ...)
    opened = config.choice("train.rollout").bind().open(graphdef, Weights(trained, frozen), tokenizer)
    prompts = np.random.default_rng(0).integers(1, tokenizer.vocab_size, (options.prompts, options.prompt_tokens))
    sampling = attrs.evolve(config.sampling, max_tokens=options.max_tokens)
    found: dict[str, dict[str, list[float]]] = {}
    for step in range(options.repeats + 1):
        step_keys = keys.per_sample(keys.stream(0, keys.SAMPLING, step), options.prompts, options.samples)
        tapes = []
        for name, again in (("cached", False), ("by_rounds", True)):
            engine = Counted(opened, again)
            play = Rounds(engine=engine, pad_id=0, max_turn_tokens=options.turn_tokens)
            wall, cpu = time.perf_counter(), time.process_time()
            tape, _ = play(prompts, np.ones_like(prompts, bool), step_keys, sampling, agent(options, step))
            figures = {
                "cpu_s": round(time.process_time() - cpu, 3),
                "wall_s": round(time.perf_counter() - wall, 3),
                "prefilled_per_episode": engine.prefilled / len(tape.tokens),
                "sampled_per_episode": float(tape.mask.sum() / len(tape.tokens)),
            }
            tapes.append(tape)
            for key, value in figures.items():
                found.setdefault(name, {}).setdefault(key, []).append(value)
        check_same(*tapes)
    jax.effects_barrier()
    return summary(found)


def check_same(cached: Tape, again: Tape) -> None:
    """Both ways sample the same tokens with the same log-probabilities."""
    np.testing.assert_array_equal(cached.tokens, again.tokens)
    np.testing.assert_allclose(cached.logps, again.logps, atol=1e-4)


def summary(found: dict[str, dict[str, list[float]]]) -> dict[str, Any]:
    """Return the medians without the first call, which compiles, and the ratios of by_rounds to cached."""
    figures = {
        name: {key: round(statistics.median(values[1:]), 3) for key, values in each.items()}
        | {"first_call_cpu_s": each["cpu_s"][0]}
        for name, each in found.items()
    }
    pairs = {key: (found["by_rounds"][key][1:], found["cached"][key][1:]) for key in ("cpu_s", "prefilled_per_episode")}
    ratios = {key: [round(a / b, 2) for a, b in zip(*pair, strict=True)] for key, pair in pairs.items()}
    return figures | {"by_rounds / cached": ratios | {"median_cpu_s": statistics.median(ratios["cpu_s"])}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--samples", type=int, default=8, help="episodes of each prompt")
    parser.add_argument("--prompt-tokens", type=int, default=64)
    parser.add_argument("--turns", type=int, default=6, help="most turns of an episode")
    parser.add_argument("--turn-tokens", type=int, default=16, help="most tokens of a turn")
    parser.add_argument("--observation", type=int, nargs=2, default=(8, 24), help="least and most tokens")
    parser.add_argument("--max-tokens", type=int, default=256, help="most tokens of an episode")
    parser.add_argument("--repeats", type=int, default=3, help="timed calls of each")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    register()
    print(json.dumps(vars(options) | measure(options) | machine(), indent=2))


if __name__ == "__main__":
    main()
