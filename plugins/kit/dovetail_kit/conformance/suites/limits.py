"""Claims about numbers whose names say what they bound, and on which side."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import numpy as np

from dovetail.registry import Component
from dovetail_kit.conformance import batch
from dovetail_kit.conformance.case import ArrayCase
from dovetail_kit.conformance.check import Failed, Inapplicable, check
from dovetail_kit.conformance.subject import Subject
from dovetail_kit.conformance.suites.directions import EPSILON, ROW

BOTH_SIDES: Final = re.compile(r"^(bound|clamp|clip|clip_value|limit)$")
SIDE: Final = re.compile(r"(?:^|_)(positive|pos|negative|neg)(?:_|$)")
DELTA: Final = re.compile(r"^(huber_)?delta$|^huber$")
TOKENS: Final = re.compile(r"^max(imum)?_(completion_)?(tokens|length)$")
OF_KIND: Final = {"advantage": ("scores", "token_rewards"), "reward_shaping": ("token_rewards",), "kl": ("logps",)}
"""What is moved far away to see a bound: the first of these that is read."""
FAR: Final = 1e3
STRIDE, JUMP = 0.05, 4.0
"""Steps of an error, and how many times those beside it a change must be to be a jump."""


def _named(pattern: re.Pattern[str]) -> Callable[[Component], bool]:
    """Return a condition: it has a hyperparameter with such a name."""
    return lambda component: any(pattern.search(name) for name in component.params)


def _floats(subject: Subject, pattern: re.Pattern[str]) -> dict[str, float]:
    return {name: float(value) for name, value in subject.floats.items() if pattern.search(name)}


@check(
    "advantage",
    "kl",
    "reward_shaping",
    when=_named(BOTH_SIDES),
    fix="Bound both sides: jnp.clip(x, -bound, bound). What bounds one side alone is called upper, lower or max_....",
)
def bounds_both_sides(subject: Subject) -> None:
    """If a number called `bound`, `clip` or `clamp` bounds the result above, it bounds its size below as well.

    A single token that is far off on the other side dominates a batch, or earns without end.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    read = [name for name in OF_KIND[subject.component.kind] if name in fields]
    if not read:
        raise Inapplicable(f"it reads no {' or '.join(OF_KIND[subject.component.kind])}")
    name = read[0]
    rows = np.arange(batch.ROWS) % 2 == 0  # of a group some alone, as its advantages are differences
    of_some = rows.reshape(-1, *[1] * (fields[name].ndim - 1))
    where = of_some if subject.component.kind == "advantage" else True
    for bound, most in _floats(subject, BOTH_SIDES).items():
        up, down = (
            np.where(
                fields["mask"],
                case.run(fields | {name: (fields[name] + np.float32(far) * where).astype(np.float32)}).value,
                0,
            )
            for far in (FAR, -FAR)
        )
        if 0.5 * most <= up.max() <= 1.01 * most + EPSILON and down.min() < -1.01 * most - EPSILON:
            raise Failed(
                f"'{bound}' = {most:g}: where {name} are {FAR:g} higher the largest result is {up.max():.6g}, and where"
                f" they are {FAR:g} lower the smallest is {down.min():.6g}"
            )


@check(
    "value_loss",
    reads=["values", "returns"],
    when=_named(DELTA),
    fix="Compare the size of the error with it: jnp.abs(values - returns) <= delta.",
)
def far_errors_pull_alike(subject: Subject) -> None:
    """With a number called `delta`, an error of 50 pulls no harder than one of 20: above the return, and below it.

    With the sign of the error in the comparison, the loss is robust on one side, and the critic drifts to the other.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    for name, delta in _floats(subject, DELTA).items():
        for side, where in ((1.0, "above"), (-1.0, "below")):
            near, far = (
                np.abs(case.run(_off(fields, side * error * max(delta, 1.0))).gradients["values"]).max()
                for error in (20.0, 50.0)
            )
            if far > 1.5 * near + EPSILON:
                raise Failed(
                    f"with '{name}' = {delta:g} the gradient of a value {20 * max(delta, 1.0):g} {where} its return is"
                    f" {near:.6g}, and {far:.6g} where it is {50 * max(delta, 1.0):g} {where} it"
                )


def _off(fields: batch.Fields, error: float) -> batch.Fields:
    """Return fields in which each value, which has not moved since collection, is so much above its return."""
    own = {name: fields["values"] for name in ("old_values",) if name in fields}
    return fields | own | {"returns": (fields["values"] - np.float32(error)).astype(np.float32)}


@check(
    "policy_loss",
    "loss_mask",
    "loss_term",
    reads=["advantages"],
    when=_named(SIDE),
    fix="Choose by the advantage: jnp.where(advantages > 0, ..._positive, ..._negative).",
)
def of_its_sign_alone(subject: Subject) -> None:
    """A number called `..._positive` changes nothing where every advantage is negative, and one called `..._negative`
    nothing where all are positive.

    Chosen by the ratio instead, or the other way round, a setting for successes acts on failures.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    for name, value in _floats(subject, SIDE).items():
        found = SIDE.search(name)
        assert found
        sign = -1.0 if found[1].startswith("pos") else 1.0
        size = np.abs(fields["advantages"]) + np.float32(0.1)
        given = fields | {"advantages": np.where(fields["mask"], sign * size, 0).astype(np.float32)}
        before, after = (
            case.run(given, subject.floats | {name: np.float32(each)}) for each in (value, 0.5 * value + 0.01)
        )
        pairs = [(before.value, after.value), *((g, after.gradients[n]) for n, g in before.gradients.items())]
        if not all(np.allclose(ours, theirs, rtol=1e-4, atol=1e-6, equal_nan=True) for ours, theirs in pairs):
            raise Failed(
                f"where every advantage is {'negative' if sign < 0 else 'positive'}, '{name}' ="
                f" {0.5 * value + 0.01:g} instead of {value:g} makes a difference"
            )


def _most(component: Component) -> str | None:
    return next((name for name in component.params if TOKENS.search(name)), None)


@check(
    "reward_shaping",
    reads=["lengths"],
    when=lambda component: _most(component) is not None,
    fix="Begin before the limit: over = lengths - (max_tokens - buffer).",
)
def acts_within_the_limit(subject: Subject) -> None:
    """With a number called `max_tokens`, which no completion exceeds, some length up to it makes a difference.

    What begins beyond the limit never does anything: completions are cut off there.
    """
    name, case = _most(subject.component), ArrayCase.of(subject)
    fields, most = case.fields(), subject.params[_most(subject.component) or ""]
    if not isinstance(most, int) or most < 1:
        raise Inapplicable(f"'{name}' is {most!r}")
    totals = []
    for length in np.unique(np.linspace(1, most, 40).round().astype(np.int32)):
        mask = np.arange(batch.TOKENS) < np.full((batch.ROWS, 1), length)
        rewards = np.where(np.cumsum(mask, axis=1) == mask.sum(axis=1, keepdims=True), mask, 0).astype(np.float32)
        lengths = np.full(batch.ROWS, length, np.int32)  # of a completion that is longer than the batch is wide, too
        given = batch.with_mask(fields, mask) | {"token_rewards": rewards, "lengths": lengths}
        totals.append(np.where(mask, case.run(given).value, 0).sum(axis=1))
    if np.ptp(np.array(totals), axis=0).max() < EPSILON:
        raise Failed(f"with '{name}' = {most} all completions of 1 to {most} tokens get {totals[0].max():.6g}")


@check(
    "kl",
    "value_loss",
    fix="Where one formula ends and the next begins, both must give the same: Huber's is ½e², then δ·(|e| - ½δ).",
)
def has_no_jumps(subject: Subject) -> None:
    """As the policy moves away from the reference, or a value from its return, the result changes without a jump.

    At a jump the gradient says nothing of what the loss does, and the larger error may cost less.
    """
    case = ArrayCase.of(subject)
    name, target = ("values", "returns") if subject.component.kind == "value_loss" else ("logps", "ref_logps")
    fields = case.fields()
    if not {name, target} <= fields.keys():
        raise Inapplicable(f"it does not read {name} and {target}")
    base = fields[target]
    others = {each: base for each in ("old_values", "old_logps") if each in fields}
    offsets = np.arange(-6.0, 6.0, STRIDE, dtype=np.float32)
    values = [
        float(case.run(fields | others | {name: (base + offset).astype(np.float32)}).value[ROW, 0])
        for offset in offsets
    ]
    steps = np.abs(np.diff(values))
    worst = int(np.argmax(steps))
    beside = max(steps[max(worst - 1, 0)], steps[min(worst + 1, len(steps) - 1)])
    if steps[worst] > JUMP * STRIDE and steps[worst] > JUMP * beside:
        raise Failed(
            f"where {name} are {offsets[worst]:.2f} off it is {values[worst]:.6g}, and {values[worst + 1]:.6g} where"
            f" they are {offsets[worst + 1]:.2f} off"
        )
