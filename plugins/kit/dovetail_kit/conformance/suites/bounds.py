"""Claims about numbers called after a bound, a price or a memory: the result moves to the side that the name says."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import jax.numpy as jnp
import numpy as np

from dovetail.registry import Component
from dovetail.step.parts import split_metrics
from dovetail_kit.conformance import batch
from dovetail_kit.conformance.case import ArrayCase
from dovetail_kit.conformance.check import Failed, Inapplicable, check
from dovetail_kit.conformance.subject import Subject, allows, said_of
from dovetail_kit.conformance.suites.curricula import PROMPTS
from dovetail_kit.conformance.suites.directions import EPSILON
from dovetail_kit.conformance.suites.numbers import schedule_of
from dovetail_kit.conformance.suites.stopping import HOPELESS, asked
from dovetail_kit.conformance.suites.texts import asks_of_many_texts, call_on, is_pure, records_of

BOUND: Final = re.compile(
    r"^(max|min)(imum)?_(completion_)?(length|turns|errors|staleness|entropy|score|reward|mean|spread|std|deviation)$"
)
VALUES: Final = (0, 0.1, 0.3, 0.5, 1, 2, 3, 5, 8)
"""What bounds are tried with: lengths of the batch, and shares."""
COST: Final = re.compile(r"(^|_)(cost|penalty)$")
FACTOR: Final = re.compile(r"factor|multipl|times", re.IGNORECASE)
FLOOR: Final = re.compile(r"^(floor|min(imum)?(_(ratio|factor|weight))?|lr_floor)$")
CLIP: Final = re.compile(r"^(value_)?clip(_(range|value))?$|^cliprange$")
LOPSIDED: Final = re.compile(r"tau|quantile|expectile|_(high|low|up|down|above|below|pos|neg)")
"""What treats errors above and below differently, as its name says."""
TRIALS: Final = re.compile(r"^min_(trials|others)$")
SEVERAL, FEWER = 8, 3
MEMORY: Final = "decay"
TOTAL: Final = 200


def _has(pattern: re.Pattern[str]) -> Callable[[Component], bool]:
    return lambda component: any(pattern.search(name) for name in component.params)


def _names(component: Component, pattern: re.Pattern[str]) -> list[str]:
    return [name for name in component.params if pattern.search(name)]


def _changed(subject: Subject, **given: Any) -> Subject:
    return Subject(subject.component, {**subject.given, **given})


@check(
    "completion_filter",
    "group_filter",
    "loss_mask",
    when=_has(BOUND),
    fix="Keep what is at most max_..., and at least min_...; turn the comparison round.",
)
def a_wider_bound_keeps_no_less(subject: Subject) -> None:
    """The higher a number called `max_length`, `max_entropy` or the like is, the more tokens are kept; the higher one
    called `min_length` or the like, the fewer.

    With the comparison turned round, a run is trained on what its config says it leaves out, and on nothing else.
    """
    fields = ArrayCase.of(subject).fields()
    for name in _names(subject.component, BOUND):
        present = subject.params[name]
        if isinstance(present, bool) or not isinstance(present, int | float):
            continue
        values = [type(present)(x) for x in VALUES if isinstance(present, float) or isinstance(x, int)]
        values = [x for x in values if allows(subject.component, name, x)]
        kept = [int((ArrayCase(_changed(subject, **{name: x})).eager(fields).value != 0).sum()) for x in values]
        sign = 1 if name.startswith("max") else -1
        if (sign * np.diff(kept) < 0).any():
            told = ", ".join(f"{count} with {value:g}" for value, count in zip(values, kept, strict=True))
            raise Failed(f"of {kept and fields['mask'].size} places it keeps, by '{name}': {told}")


@check(
    "reward",
    when=lambda component: _has(COST)(component) and is_pure(component),
    fix="Subtract it, and see to the sign of what it is multiplied by.",
)
def costs_cost(subject: Subject) -> None:
    """Twice a number called `..._cost` or `..._penalty` gives no completion a higher score, unless its line in the
    docstring calls it a factor.

    With the sign turned, a policy is paid for what its config says it should avoid.
    """
    asks_of_many_texts(subject)
    records = records_of(subject)
    longer = [record | {"completions": f"{record['completions']} and so on" * 40} for record in records]
    for name in _names(subject.component, COST):
        present = subject.params[name]
        if isinstance(present, bool) or not isinstance(present, int | float):
            continue
        more = 2 * present
        if not present or not allows(subject.component, name, more) or FACTOR.search(said_of(subject.component, name)):
            continue  # of a score of zero, and of a factor, nobody knows what it means to be larger
        before, after = (call_on(_changed(subject, **{name: x}), records + longer) for x in (present, more))
        for record, old, new in zip(records + longer, before, after, strict=True):
            if None not in (old, new) and float(new) > float(old) + EPSILON:
                raise Failed(
                    f"with '{name}' = {more:g} instead of {present:g} the score of {record['completions'][:40]!r} rises"
                    f" from {float(old):.6g} to {float(new):.6g}"
                )


@check(
    "lr_schedule",
    reads=["total_steps"],
    when=_has(FLOOR),
    fix="Scale what falls to the range above it, floor + (1 - floor) * x, or take jnp.maximum(x, floor).",
)
def does_not_end_below_its_floor(subject: Subject) -> None:
    """At the last step it is no lower than a number called `floor`, `min_ratio` or `minimum`, times its highest factor.

    A rate that goes on falling below what the config says trains nothing in the end.
    """
    for name in _names(subject.component, FLOOR):
        for floor in (0.1, 0.3):
            if name in subject.floats and allows(subject.component, name, floor):
                schedule = schedule_of(subject, subject.floats | {name: np.float32(floor)})
                curve = [float(schedule(jnp.int32(step), jnp.int32(TOTAL))) for step in range(9, TOTAL, 10)]
                if curve[-1] < floor * min(1.0, max(curve)) - 1e-3:
                    raise Failed(f"with '{name}' = {floor:g} the last of {TOTAL} steps has {curve[-1]:.6g}")


@check(
    "value_loss",
    reads=["values", "returns", "old_values"],
    when=lambda component: _has(CLIP)(component) and not _has(LOPSIDED)(component),
    fix="Bound the change of the value on both sides: old_values + jnp.clip(values - old_values, -clip, clip).",
)
def clips_both_sides(subject: Subject) -> None:
    """With a number called `clip`, the loss of values, old values and returns is that of their negatives.

    Bound on one side, a critic runs away on the other, and is biased to it.
    """
    case = ArrayCase.of(subject)
    for factor in (1.0, 8.0):
        fields = batch.scaled(case.fields(), factor)
        turned = {name: -fields[name] for name in ("values", "old_values", "returns")}
        ours, theirs = (
            np.where(fields["mask"], case.run(given).gradients["values"], 0) for given in (fields, fields | turned)
        )
        if not np.allclose(ours, -theirs, rtol=1e-3, atol=1e-5):
            row, token = np.unravel_index(np.argmax(np.abs(ours + theirs)), ours.shape)
            raise Failed(
                f"the gradient at [{row}, {token}] is {ours[row, token]:.6g}, and {theirs[row, token]:.6g} where value,"
                " old value and return are their negatives"
            )


@check("early_stopping", when=_has(TRIALS), fix="Compare it with the number of others that have come to this step.")
def waits_for_enough_trials(subject: Subject) -> None:
    """With a number called `min_trials` of 8, it stops nothing beside 3 others.

    Compared with the number of figures of the trial, it lets the first trials of a sweep be judged by one another.
    """
    others = [[(step, 0.01 * trial * step) for step in range(0, 101, 5)] for trial in range(1, FEWER + 1)]
    for name in _names(subject.component, TRIALS):
        if not isinstance(subject.params[name], int) or not allows(subject.component, name, SEVERAL):
            continue
        for length in range(1, 21):
            curve = [(step, HOPELESS) for step in range(0, 5 * length, 5)]
            if asked(_changed(subject, **{name: SEVERAL}), curve, [list(other) for other in others]):
                raise Failed(f"with '{name}' = {SEVERAL}, beside {FEWER} others it stops a trial with {length} figures")


@check(
    "curriculum",
    when=lambda component: MEMORY in component.params,
    fix="Keep `decay` of the state, and take 1 - decay of what is new.",
)
def a_larger_decay_remembers_longer(subject: Subject) -> None:
    """The larger a number called `decay` is, the more of a step's scores is left in the state three steps later.

    With the two shares exchanged, a rate over a hundred steps is that of the step before.
    """
    low, high = 0.1, 0.9
    if not all(isinstance(subject.params[MEMORY], float) and allows(subject.component, MEMORY, x) for x in (low, high)):
        raise Inapplicable(f"its '{MEMORY}' is not a number that can be {low} or {high}")
    left = {decay: _left_of_the_first(_changed(subject, **{MEMORY: decay})) for decay in (low, high)}
    if left[high] < left[low] - 1e-9:
        raise Failed(
            f"whether completions failed or succeeded at first makes a difference of {left[low]:.6g} to the state four"
            f" steps later with '{MEMORY}' = {low}, and of {left[high]:.6g} with {high}"
        )


def _left_of_the_first(subject: Subject) -> float:
    """Return how far states are apart that differ in the scores of the first of five steps."""
    curriculum: Any = subject.bind()
    states = []
    for first in (0.0, 1.0):
        state = curriculum.init(PROMPTS)
        for score in (first, 0.5, 0.5, 0.5, 0.5):
            scores = np.full((PROMPTS, 2), score)
            state, _ = split_metrics(curriculum.update(state, np.arange(PROMPTS), scores))
        states.append(state)
    pairs = ((np.asarray(states[0][name], float), np.asarray(states[1][name], float)) for name in states[0])
    return float(sum(np.nansum(np.abs(ours - theirs)) for ours, theirs in pairs))
