"""Time the rollout alone: `python benchmarks/rollout.py W1 W2 W3 > rollout.json`.

Each `--variant "slots=64 shrink=False"` also times the engine with other parameters. The calls of all variants
alternate, so that a busy machine affects all of them alike, and all variants sample the same completions.
"""

from __future__ import annotations

import argparse
import ast
import json
import statistics
import time
from typing import Any

from flax import nnx
from step import machine
from workloads import WORKLOADS, register

from dovetail.config import load
from dovetail.host.prompts import encode
from dovetail.protocols import Weights
from dovetail.step import keys


def measure(name: str, variants: dict[str, dict[str, Any]], repeats: int, overrides: list[str]) -> dict[str, Any]:
    """Return the figures of each variant on one workload."""
    config = load(None, [*WORKLOADS[name], *overrides])
    train, sampling = config.train, config.sampling
    tokenizer = config.choice("train.tokenizer").bind().make(())
    task = config.choice("train.task").bind()
    model = config.choice("train.model").bind().make(tokenizer.vocab_size, rngs=nnx.Rngs(0), place=None)
    graphdef, trained, frozen = nnx.split(model, nnx.Param, ...)
    texts = [example["prompt"] for example in task.examples("train")[: train.prompts]]
    prompts = encode(texts, tokenizer, train.max_prompt_tokens)
    chosen = config.choice("train.rollout")
    engines = {
        label: chosen.component.bind(**chosen.params | params).open(graphdef, Weights(trained, frozen), tokenizer)
        for label, params in variants.items()
    }
    figures = {label: {"wall_s": [], "cpu_s": [], "tokens": []} for label in engines}
    for step in range(repeats + 1):
        step_keys = keys.per_sample(keys.stream(0, keys.SAMPLING, step), train.prompts, train.group_size)
        for label, engine in engines.items():
            wall, cpu = time.perf_counter(), time.process_time()
            drawn = engine.generate(*prompts, step_keys, sampling)
            found = figures[label]
            found["wall_s"].append(round(time.perf_counter() - wall, 4))
            found["cpu_s"].append(round(time.process_time() - cpu, 4))
            found["tokens"].append(int(drawn.mask.sum()))
    return {label: _summary(figures[label], engine) for label, engine in engines.items()}


def _summary(found: dict[str, list[Any]], engine: Any) -> dict[str, Any]:
    """Return the figures without those of the first call, which compiles."""
    rates = [tokens / wall for tokens, wall in zip(found["tokens"][1:], found["wall_s"][1:], strict=True)]
    return {
        "first_call_s": found["wall_s"][0],
        "wall_s": found["wall_s"][1:],
        "cpu_s": found["cpu_s"][1:],
        "least_wall_s": min(found["wall_s"][1:]),
        "least_cpu_s": min(found["cpu_s"][1:]),
        "tokens": statistics.mean(found["tokens"][1:]),
        "tokens_per_s": round(statistics.median(rates)),
        "best_tokens_per_s": round(max(rates)),
        "programs": engine.compiled,
    }


def _parameters(text: str) -> dict[str, Any]:
    pairs = (pair.partition("=") for pair in text.split())
    return {name: ast.literal_eval(value) for name, _, value in pairs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workloads", nargs="*", default=list(WORKLOADS), metavar="W1|W2|W3")
    parser.add_argument("--repeats", type=int, default=5, help="timed calls of each variant")
    parser.add_argument("--variant", action="append", default=[], help="other parameters of the engine: NAME=VALUE ...")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    if unknown := set(options.workloads) - set(WORKLOADS):
        parser.error(f"unknown workload {min(unknown)!r}; there are {', '.join(WORKLOADS)}")
    register()
    variants = {"as configured": {}} | {text: _parameters(text) for text in options.variant}
    found = {name: measure(name, variants, options.repeats, options.overrides) for name in options.workloads}
    print(json.dumps(found | machine(), indent=2))


if __name__ == "__main__":
    main()
