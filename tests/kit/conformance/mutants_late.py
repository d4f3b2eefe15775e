"""Broken components that fail late or at odd figures: steps in too few digits, signs, pooled votes, unread choices."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import attrs
import jax
import jax.numpy as jnp
import numpy as np
from annotated_types import Ge, Gt, Interval
from tests.kit.conformance.mutants import caught_by, right
from tests.kit.conformance.mutants_data import _Lines
from tests.kit.conformance.mutants_memory import _Controller
from tests.kit.conformance.mutants_others import _Words
from tests.kit.conformance.mutants_sweeps import _Draws

from dovetail_lab.kinds import Proposal
from dovetail_rollout.replay.recent import Recent

# --- schedules, controllers and followers


@caught_by("lr_schedule", "late_steps_do_not_overflow")
def squares_whole_numbers(step, total_steps):
    return jnp.maximum(1.0 - (step * step) / jnp.maximum(total_steps * total_steps, 1).astype(jnp.float32), 0.0)


@right("lr_schedule")
def in_waves(step, *, period: Annotated[float, Gt(0)] = 10.0):
    """0.6 + 0.4 cos(2π step / period), however long the run is."""
    return 0.6 + 0.4 * jnp.cos(2 * jnp.pi * step.astype(jnp.float32) / period)


@right("lr_schedule")
def in_teeth(step, total_steps, *, teeth: Annotated[int, Ge(1)] = 7):
    """1 - 0.9 times the share that has passed of one of as many parts of total_steps as it has teeth; step by step."""
    share = teeth * step.astype(jnp.float32) / jnp.maximum(total_steps, 1).astype(jnp.float32)
    return 1.0 - 0.9 * (share - jnp.floor(share))


@caught_by("kl_controller", "keeps_every_digit")
@attrs.frozen(kw_only=True)
class InHalfPrecision(_Controller):
    def init(self, coef: float) -> Any:
        return {"coef": jnp.asarray(coef, jnp.bfloat16)}


@caught_by("kl_controller", "keeps_every_digit")
@attrs.frozen(kw_only=True)
class CountsInEightBits(_Controller):
    def init(self, coef: float) -> Any:
        return super().init(coef) | {"count": jnp.zeros((), jnp.int8)}

    def update(self, state: Any, observed: Any, samples: Any) -> Any:
        return super().update(state, observed, samples) | {"count": state["count"] + jnp.int8(1)}


@attrs.frozen(kw_only=True)
class _Ramped:
    """Multiplies its coefficient by how far the KL is from a target, which grows to its value for `ramp` updates."""

    target: Annotated[float, Gt(0)] = 0.1
    ramp: Annotated[int, Ge(0)] = 100

    def init(self, coef: float) -> Any:
        return {"coef": jnp.asarray(coef, jnp.float32), "updates": jnp.zeros((), jnp.int32)}

    def coef(self, state: Any) -> Any:
        return state["coef"]

    def update(self, state: Any, kl: Any, samples: Any) -> Any:
        updates = state["updates"] + 1
        now = self.aimed() * jnp.clip(updates / max(self.ramp, 1), 0.01, 1.0)
        gap = jnp.clip(jnp.asarray(kl, jnp.float32) / now - 1.0, -0.2, 0.2)
        new = {"coef": jnp.clip(state["coef"] * (1.0 + gap), 1e-4, 10.0), "updates": updates}
        return jax.tree.map(lambda after, before: jnp.where(samples > 0, after, before), new, state)

    def aimed(self) -> Any:
        return self.target


@right("kl_controller")
class GrowsItsTarget(_Ramped):
    """β ← β (1 + clip(KL / target - 1, ±0.2)); the target grows to its value for `ramp` updates."""


@caught_by("kl_controller", "rests_at_its_target")
class GrowsToHalfItsTarget(_Ramped):
    def aimed(self) -> Any:
        return 0.5 * self.target


@caught_by("follower", "every_so_many_steps")
@attrs.frozen(kw_only=True)
class CountsInTooFewDigits:
    every: Annotated[int, Ge(1)] = 10

    def __call__(self, weights: Any, policy: Any, step: Any) -> Any:
        low = step.astype(jnp.bfloat16).astype(jnp.int32)
        due = jnp.where(step < 256, step, low) % self.every == 0
        return jax.tree.map(lambda w, p: jnp.where(due, p, w), weights, policy)


@caught_by("follower", "a_larger_rate_moves_more")
@attrs.frozen(kw_only=True)
class KeepsTheRate:
    rate: Annotated[float, Interval(ge=0, le=1)] = 0.5

    def __call__(self, weights: Any, policy: Any) -> Any:
        return jax.tree.map(lambda w, p: (self.rate * w + (1 - self.rate) * p).astype(w.dtype), weights, policy)


# --- early stopping and samplers


@caught_by("early_stopping", "a_trial_has_one_vote")
def by_a_vote_of_figures(curve, others):
    step, value = curve[-1]
    figures = [figure for other in others for at, figure in other if at <= step and math.isfinite(figure)]
    return len(figures) > 3 and sum(figure > value for figure in figures) > 0.75 * len(figures)


@right("early_stopping")
def by_a_vote_of_trials(curve, others, *, votes: Annotated[int, Ge(2)] = 4):
    """Stop a trial below the figures of three quarters of the others that have come to its step, if these have votes."""
    step, value = curve[-1]
    there = [[figure for at, figure in other if at <= step][-1] for other in others if other[-1][0] >= step]
    return len(there) >= votes and sum(figure > value for figure in there) > 0.75 * len(there)


@right("early_stopping")
def after_many_figures(curve, others, *, figures: Annotated[int, Ge(1)] = 25):
    """Stop a trial that is below all others at its step, once it has more than so many figures."""
    step, value = curve[-1]
    there = [dict(other)[step] for other in others if step in dict(other)]
    return len(curve) > figures and bool(there) and value < min(there)


@caught_by("sampler", "takes_every_form", raises="TypeError")
@attrs.frozen(kw_only=True)
class TakesChoicesForRanges(_Draws):
    def values(self, space, draws, seed, index):
        return {
            key: form.draw(seed, key, index) if form.form != "choice" else sum(form.arguments) / 2
            for key, form in space.items()
        }


@caught_by("sampler", "takes_every_form")
@attrs.frozen(kw_only=True)
class BetweenTwoChoices(_Draws):
    def values(self, space, draws, seed, index):
        return {
            key: "cosine or linear" if isinstance(form.arguments[0], str) else form.draw(seed, key, index)
            for key, form in space.items()
        }


@caught_by("sampler", "reaches_every_choice")
@attrs.frozen(kw_only=True)
class NeverTheLast(_Draws):
    def values(self, space, draws, seed, index):
        drawn = {key: form.draw(seed, key, index) for key, form in space.items()}
        return {
            key: min(value, form.arguments[1] - 1) if form.form == "int" else value
            for (key, form), value in zip(space.items(), drawn.values(), strict=True)
        }


class _NearTheBest:
    """Asks near the best result, or, where `failed` is None, near the best of those that did not fail."""

    def __init__(self, space: Any, draws: int, seed: int, failed: float | None) -> None:
        self.space, self.draws, self.seed, self.failed = space, draws, seed, failed
        self.asked: list[Any] = []
        self.told: dict[int, float] = {}

    def ask(self) -> Proposal | None:
        number = len(self.asked)
        if number == self.draws:
            return None
        best = max(self.told, key=lambda each: self.told[each], default=None)
        near = {} if best is None or number < 4 else self.asked[best].values
        drawn = {key: form.draw(self.seed, key, number) for key, form in self.space.items()}
        kept = {key: value for key, value in near.items() if self.space[key].form != "loguniform"}
        middle = {key: math.sqrt(value * drawn[key]) for key, value in near.items() if key not in kept}
        self.asked.append(Proposal(values=drawn | kept | middle))
        return self.asked[-1]

    def tell(self, number: int, result: Any) -> None:
        value = self.failed if result.value is None else result.value
        if value is not None and math.isfinite(value):
            self.told[number] = value


@caught_by("sampler", "a_failure_is_no_zero")
@attrs.frozen(kw_only=True)
class TakesAFailureForZero:
    """Asks near the best result; a failure is 0."""

    learns: ClassVar[bool] = True

    def open(self, space: Any, *, draws: int, seed: int, total_steps: int) -> _NearTheBest:
        return _NearTheBest(space, draws, seed, 0.0)


@right("sampler")
@attrs.frozen(kw_only=True)
class LeavesFailuresOut:
    """Asks near the best result, so near as its logarithm is half way; what failed is left out."""

    learns: ClassVar[bool] = True

    def open(self, space: Any, *, draws: int, seed: int, total_steps: int) -> _NearTheBest:
        return _NearTheBest(space, draws, seed, None)


# --- sinks


class _OnlyPositive(_Lines):
    def write(self, step: int, metrics: Any) -> None:
        super().write(step, {name: max(value, 0.0) for name, value in metrics.items()})


@caught_by("sink", "figures_of_either_sign")
@attrs.frozen(kw_only=True)
class NothingBelowZero:
    def open(self, folder: Any, total_steps: int, start_step: int) -> Any:
        return _OnlyPositive(f"{folder}/lines.jsonl", "a" if start_step else "w")


class _SixDigits(_Lines):
    def write(self, step: int, metrics: Any) -> None:
        self.lines.append(json.dumps({"step": f"{step:g}", **metrics}))


@caught_by("sink", "late_steps_in_full")
@attrs.frozen(kw_only=True)
class StepsInSixDigits:
    def open(self, folder: Any, total_steps: int, start_step: int) -> Any:
        return _SixDigits(f"{folder}/lines.jsonl", "a" if start_step else "w")


class _ByStep(_Lines):
    def write(self, step: int, metrics: Any) -> None:
        self.lines = [line for line in self.lines if json.loads(line)["step"] != step]
        super().write(step, metrics)


@caught_by("sink", "keeps_both_records_of_a_step")
@attrs.frozen(kw_only=True)
class OneRecordForAStep:
    def open(self, folder: Any, total_steps: int, start_step: int) -> Any:
        return _ByStep(f"{folder}/lines.jsonl", "a" if start_step else "w")


# --- tokenizers


class _Strict(_Words):
    def decode(self, ids):
        return bytes(token for token in ids if token < 256).decode()


@caught_by("tokenizer", "decodes_whatever_is_drawn")
@attrs.frozen(kw_only=True)
class DecodesTextAlone:
    def make(self, corpus):
        return _Strict()

    load = make


@attrs.frozen
class _Cased(_Words):
    lower: bool
    letters: str

    def encode(self, text):
        text = text.lower() if self.lower else text
        return [258, *super().encode(text)] if self.letters == "marked" else super().encode(text)

    def bridge(self, messages, tools=None):
        return self.encode("".join(f"\n{message['content']}" for message in messages))

    def render(self, prompt, tools=None):
        return prompt if isinstance(prompt, str) else "".join(f"\n{message['content']}" for message in prompt)

    def save(self, folder):
        (folder / "settings.json").write_text(json.dumps({"lower": self.lower, "letters": self.letters}))


@attrs.frozen(kw_only=True)
class _Chooses:
    lower: bool = False
    letters: Literal["plain", "marked"] = "plain"

    def make(self, corpus: Any) -> Any:
        return _Cased(self.lower, self.letters)

    def load(self, folder: Path) -> Any:
        return _Cased(**json.loads((folder / "settings.json").read_text()))


@right("tokenizer")
class Bytes(_Chooses):
    """Bytes, of lower-case letters if `lower` is set; `letters` says whether texts begin with a mark."""


@caught_by("tokenizer", "saves_what_was_chosen")
class LoadsItsOwnSwitch(_Chooses):
    def load(self, folder: Path) -> Any:
        return _Cased(self.lower, json.loads((folder / "settings.json").read_text())["letters"])


@caught_by("tokenizer", "saves_what_was_chosen")
class LoadsItsOwnWord(_Chooses):
    def load(self, folder: Path) -> Any:
        return _Cased(json.loads((folder / "settings.json").read_text())["lower"], self.letters)


# --- replays


@right("replay")
@attrs.frozen(kw_only=True)
class OnceThereAreEnough(Recent):
    """The newest groups whose scores differ, by `spread`, once there have been so many as `least`.

    Attributes:
        groups: how many join.
        capacity: how many are kept.
        max_age: their greatest age in steps.
        least: how many there must have been.
    """

    max_age: Annotated[int, Ge(1)] = 100
    least: Annotated[int, Ge(1)] = 64
    known: ClassVar[str] = "known"

    def init(self, empty: Any) -> Any:
        return super().init(empty) | {self.known: np.zeros((), np.int64)}

    def step(self, state: Any, fresh: Any, rng: Any) -> Any:
        known = int(state[self.known])
        earlier, after, _ = super().step(state, fresh, rng)
        if known < self.least:
            earlier = {name: np.zeros_like(array) for name, array in earlier.items()}
        live = fresh["mask"].any(axis=(1, 2)) & (np.ptp(fresh["scores"], axis=1) > 0)
        return earlier, after | {self.known: np.asarray(known + int(live.sum()))}


@right("replay")
@attrs.frozen(kw_only=True)
class FirstInFirstOut:
    """A queue of the groups whose scores differ, of which each joins once, the oldest first.

    Two groups of each step of the checks have such scores: by default both join in the next one, and none waits longer.

    Attributes:
        groups: how many join.
        capacity: how many may wait; the newest of more do not.
    """

    groups: Annotated[int, Ge(1)] = 2
    capacity: Annotated[int, Ge(1)] = 16

    def init(self, empty: Any) -> Any:
        slots = {name: np.zeros((self.capacity, *array.shape), array.dtype) for name, array in empty.items()}
        return slots | {"waiting": np.zeros((), np.int64)}

    def step(self, state: Any, fresh: Any, rng: Any) -> Any:
        waiting = int(state["waiting"])
        mixed = fresh["mask"].any(axis=(1, 2)) & (np.ptp(fresh["scores"], axis=1) > 0)
        joining = min(self.groups, waiting)
        earlier, after = {}, {}
        for name, array in fresh.items():
            none = np.zeros((self.capacity, *array.shape[1:]), array.dtype)
            earlier[name] = np.concatenate([state[name][:joining], none])[: self.groups]
            queue = np.concatenate([state[name][joining:waiting], array[mixed]])
            after[name] = np.concatenate([queue, none])[: self.capacity]
        length = min(waiting - joining + int(mixed.sum()), self.capacity)
        return earlier, after | {"waiting": np.asarray(length)}


@caught_by("replay", "joins_groups")
@attrs.frozen(kw_only=True)
class KnowsItsFields(Recent):
    """Only the fields that every run has."""

    def init(self, empty: Any) -> Any:
        return super().init({name: array for name, array in empty.items() if not name.startswith("column")})

    def step(self, state: Any, fresh: Any, rng: Any) -> Any:
        return super().step(state, {name: array for name, array in fresh.items() if name in state}, rng)


@caught_by("replay", "goes_on_taking_in")
@attrs.frozen(kw_only=True)
class FullForEver(Recent):
    """Keeps the first groups that fit, of which there are many."""

    capacity: Annotated[int, Ge(1)] = 200
    max_age: Annotated[int, Ge(1)] = 10_000

    def step(self, state: Any, fresh: Any, rng: Any) -> Any:
        earlier, after, metrics = super().step(state, fresh, rng)
        return earlier, after if (state["age"] < 0).any() else dict(state), metrics


# --- curricula


@right("curriculum")
@attrs.frozen(kw_only=True)
class MoreAndMore:
    """Prompts of the first part of the data, which grows with the square of the updates until it is all of them.

    Attributes:
        initial: the share of the prompts that it begins with.
        steps: the number of updates after which all are drawn from.
    """

    initial: Annotated[float, Interval(gt=0, le=0.1)] = 0.1
    steps: Annotated[int, Ge(50)] = 200

    def init(self, examples: int) -> Any:
        return {"updates": np.zeros((), np.int64), "examples": np.asarray(examples)}

    def choose(self, state: Any, count: int, rng: Any) -> Any:
        passed = min(float(state["updates"]) / self.steps, 1.0) ** 2
        share = self.initial + (1.0 - self.initial) * passed
        return rng.integers(0, max(1, int(share * state["examples"])), count)

    def update(self, state: Any, chosen: Any, scores: Any) -> Any:
        return {**state, "updates": np.asarray(state["updates"] + 1)}
