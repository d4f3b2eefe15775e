"""Broken components with too few digits, numbers that overflow, and parts that never learn, stay or are saved."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import attrs
import jax
import jax.numpy as jnp
import numpy as np
from annotated_types import Ge, Interval
from flax import nnx
from tests.kit.conformance.mutants import caught_by
from tests.kit.conformance.mutants_data import _Lines
from tests.kit.conformance.mutants_memory import _Controller
from tests.kit.conformance.mutants_others import _Columns, _decoder, _Words
from tests.kit.conformance.mutants_words import CountsItOnce

import dovetail
from dovetail_kit.conformance.suites.models import TINY


@caught_by("lr_schedule", "tells_steps_apart")
def in_half_precision(step, total_steps):
    return 1.0 - step.astype(jnp.bfloat16).astype(jnp.float32) / total_steps


@caught_by("entropy_controller", "what_is_first_stays")
@attrs.frozen(kw_only=True)
class TheFirstIsTheHighest(_Controller):
    def init(self, coef: float) -> dict[str, Any]:
        return {"coef": jnp.float32(coef), "first": jnp.float32(0)}

    def update(self, state: dict[str, Any], observed: Any, samples: Any) -> dict[str, Any]:
        first = jnp.where(samples > 0, jnp.maximum(state["first"], observed), state["first"])
        low = jnp.clip(0.5 * first - observed, -0.2, 0.2)
        moved = jnp.where(samples > 0, state["coef"] * (1 + 0.1 * low), state["coef"])
        return {"coef": moved.astype(jnp.float32), "first": first}


@caught_by("curriculum", "chooses_by_any_score")
@attrs.frozen(kw_only=True)
class ExponentialsAsTheyAre(CountsItOnce):
    """P ∝ exp(mean)."""

    def choose(self, state, count, rng):
        weights = np.exp(state["total"] / np.maximum(4 * state["count"], 1))
        return rng.choice(len(weights), size=count, p=weights / weights.sum())


class _Rounded(_Lines):
    def write(self, step: int, metrics: Any) -> None:
        super().write(step, {name: round(value, 6) for name, value in metrics.items()})


@caught_by("sink", "small_figures_in_full")
@attrs.frozen(kw_only=True)
class RoundsToSixDecimals:
    def open(self, folder: Any, total_steps: int, start_step: int) -> Any:
        return _Rounded(f"{folder}/lines.jsonl", "a" if start_step else "w")


@caught_by("task", "held_out")
@attrs.frozen(kw_only=True)
class ApartByChance(_Columns):
    """Sums of two numbers that each split draws by itself, of so many that none is likely to be in both."""

    largest: Annotated[int, Ge(20)] = 10**9

    def examples(self, split):
        rng = np.random.default_rng(("train", "eval", "sft").index(split))
        pairs = rng.integers(0, self.largest, (400, 2)).tolist()
        more = {"completion": "2"} if split == "sft" else {}
        return [{"prompt": f"{a} + {b} =", "answer": str(a + b), **more} for a, b in pairs]


@attrs.frozen
class _LongWordsApart(_Words):
    longest: int

    def encode(self, text: str) -> list[int]:
        found: list[int] = []
        for word in text.split(" "):
            found += [258] * (len(word) > self.longest) + list(word.encode()) + [32]
        return found[:-1]


@caught_by("tokenizer", "saves_its_settings")
@attrs.frozen(kw_only=True)
class ForgetsTheLongest:
    longest: Annotated[int, Interval(ge=1, le=40)] = 20

    def make(self, corpus: Any) -> Any:
        return _LongWordsApart(self.longest)

    def load(self, folder: Path) -> Any:
        return _LongWordsApart(self.longest)


TAGGED = {"completions": "<answer>42</answer>", "answer": "42", "group_ids": 0}


@caught_by("reward", "the_whole_answer")
@dovetail.declares(examples=[(TAGGED, TAGGED | {"completions": "<answer>6</answer>"})])
def first_by_a_substring(completions, answer, group_ids):
    return [
        float(truth in text) / group_ids.count(group)
        for text, truth, group in zip(completions, answer, group_ids, strict=True)
    ]


@caught_by("field", "finite_gradients")
def spread_of_log_probabilities(logps, mask):
    count = jnp.maximum(jnp.sum(mask, axis=1, keepdims=True, dtype=jnp.float32), 1)
    logps = jnp.where(mask, logps, 0.0)
    mean = jnp.sum(logps, axis=1, keepdims=True) / count
    variance = jnp.sum(jnp.where(mask, (logps - mean) ** 2, 0.0), axis=1, keepdims=True) / count
    return jnp.where(mask, jnp.sqrt(variance), 0.0)


@caught_by("field", "learns_through_all_of_it")
def change_from_the_state_before(hidden_states, mask):
    states = jnp.where(mask[..., None], hidden_states, 0.0)
    before = jax.lax.stop_gradient(jnp.roll(states, 1, axis=1))
    return jnp.where(mask, jnp.sum(jnp.square(states - before), axis=-1), 0.0)


@caught_by("field", "the_level_of_logits_says_nothing")
def odds_as_they_are(logits):
    odds = jnp.exp(logits.astype(jnp.float32))
    return jnp.max(odds / jnp.sum(odds, axis=-1, keepdims=True), axis=-1)


@caught_by("loss_mask", "garbage")
def after_any_surprise(old_entropy, mask, *, least: float = 0.1):
    """Tokens from the first on with an entropy above `least`, which padding or a tool's token may have too."""
    surprising = jnp.cumsum(old_entropy > least, axis=1) > 0
    return mask & surprising


@caught_by("model", "every_parameter_learns", slow=True)
@attrs.frozen(kw_only=True)
class OneScaleOfTwo:
    def make(self, vocab_size, *, rngs, place):
        def call(self, tokens, mask, cache=None, *, prefix=None):
            hidden, cache = super(type(self), self).__call__(tokens, mask, cache, prefix=prefix)
            return hidden * self.scales[0], cache

        model = _decoder(__call__=call)
        model.scales = nnx.Param(jnp.ones((2, TINY["width"])))
        return model
