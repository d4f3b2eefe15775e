"""Claims about two results side by side: what is larger, farther off or named otherwise must show, in one direction."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from dovetail.errors import DovetailError
from dovetail.registry import Component
from dovetail_kit.conformance import batch
from dovetail_kit.conformance.case import ArrayCase
from dovetail_kit.conformance.check import Failed, Inapplicable, check
from dovetail_kit.conformance.subject import Subject, allows
from dovetail_kit.conformance.suites.batches import kept_tokens
from dovetail_kit.conformance.suites.directions import EPSILON, FAR_OFF, ROW

APART = 3.0
SHORT, FULL = 3, 7
"""Two other rows of the batch whose first token is the policy's; that of the first of them is its only one."""
VALUES = frozenset({"values", "old_values"})
DISCOUNT = re.compile(r"gamma|discount")
CAP = re.compile(r"(upper|cap|ceiling|highest)(_|$)|^max(imum)?_")
IN_NATS = re.compile(r"(^|_)(log|kl|divergence|entropy)(_|$)")
"""In the name of a bound, that it bounds no weight but its logarithm, or what a token is rejected by."""
COST = re.compile(r"(^|_)(cost|penalty)$")
FLIPS = 4
"""How often a verdict on groups of equal scores may change between 0 and 1; a band of scores has two ends."""


def _float_named(pattern: re.Pattern[str]) -> Callable[[Component], bool]:
    """Return a condition: it has a float hyperparameter with such a name."""
    return lambda component: any(pattern.search(name) for name in component.params if name not in component.common)


def _own(subject: Subject, pattern: re.Pattern[str]) -> dict[str, float]:
    """Return the float hyperparameters with such names."""
    common = subject.component.common
    return {name: float(x) for name, x in subject.floats.items() if pattern.search(name) and name not in common}


@check(
    "advantage",
    unless="not_monotone",
    when=lambda component: "scores" in component.reads and not component.declares.get("beyond_scores"),
    fix="Divide by the standard deviation, not by the variance: x / (std + epsilon).",
)
def larger_scores_count_more(subject: Subject) -> None:
    """Where scores are three times as far apart, the largest advantage is not less than half as large.

    An advantage that falls as the differences grow, as over a variance, makes the unit of the reward a learning rate.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    apart = (np.arange(batch.ROWS) % 2).astype(np.float32)
    near, far = (
        float(np.abs(np.where(fields["mask"], case.run(batch.with_scores(fields, x)).value, 0)).max())
        for x in (apart, APART * apart)
    )
    if far < 0.5 * near - EPSILON:
        raise Failed(
            f"with scores of 0 and {APART:g} instead of 0 and 1, the largest is {far:.6g} instead of {near:.6g}"
        )


@check(
    "advantage",
    reads=["token_rewards"],
    unless="not_monotone",
    when=_float_named(DISCOUNT),
    fix="A discount of 1 discounts nothing: multiply what follows by it, and not by one less it.",
)
def a_larger_discount_reaches_further(subject: Subject) -> None:
    """The nearer a discount is to 1, the more a reward on the last token counts for the first one.

    A config that sets gamma to 1 means that nothing is discounted; read as 1 - gamma, it discounts everything.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    first, last = np.flatnonzero(fields["mask"][ROW])[[0, -1]]
    for name in (name for name in _own(subject, DISCOUNT) if all(allows(case.component, name, x) for x in (0.5, 0.9))):
        reach = []
        for value in (0.5, 0.9):
            floats = subject.floats | {name: np.float32(value)}
            found = []
            for reward in (0.0, 5.0, 10.0):
                rewards = fields["token_rewards"].copy()
                rewards[ROW, last] = reward
                found.append(float(case.run(fields | {"token_rewards": rewards}, floats).value[ROW, first]))
            if not np.isclose(found[2] - found[0], 2 * (found[1] - found[0]), rtol=1e-3, atol=EPSILON):
                raise Inapplicable("its advantages are normalised, so that there is nothing to compare them with")
            reach.append(abs(found[1] - found[0]))
        if reach[1] < reach[0] - EPSILON:
            raise Failed(
                f"a reward of 5 on the last token moves the first advantage by {reach[0]:.6g} with '{name}' = 0.5, and"
                f" by {reach[1]:.6g} with 0.9"
            )


@check(
    "advantage",
    reads=["token_rewards"],
    when=lambda component: (
        bool(VALUES & {*component.reads}) and "turns" not in component.reads and _float_named(DISCOUNT)(component)
    ),
    fix="δ = reward + gamma · next value - value, and gamma · lambda in the sum of what follows.",
)
def a_discount_of_zero_sees_nothing_later(subject: Subject) -> None:
    """Where every discount is zero, neither later rewards nor later values count for a token.

    A discount that is applied to the trace, and not to the next value, leaves the critic's bias where it is to be cut.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    if not all(allows(subject.component, name, 1e-6) for name in _own(subject, DISCOUNT)):
        raise Inapplicable("its discounts cannot be about zero")
    floats = subject.floats | {name: np.float32(1e-6) for name in _own(subject, DISCOUNT)}
    first, last = np.flatnonzero(fields["mask"][ROW])[[0, -1]]
    places = []
    for name in ("token_rewards", *(VALUES & fields.keys())):
        for value in (3.0, -3.0):
            moved = fields[name].copy()
            moved[ROW, first + 1 : last + 1] = value
            found = case.run(fields | {name: moved}, floats).value
            low, high = found[SHORT, 0], found[FULL, 0]  # a place between two others, which whitening leaves as it is
            # two that are equal, at a bound perhaps, are no scale
            places.append(float((found[ROW, first] - low) / (high - low if abs(high - low) > EPSILON else 1.0)))
        if not abs(places[-1] - places[-2]) < 1e-3 * max(1.0, abs(places[-1])):
            raise Failed(f"later {name} of 3 or -3 change the advantage of the first token")


@check(
    "advantage",
    when=lambda component: bool(VALUES & {*component.reads}) and "turns" not in component.reads,
    fix="Take the value of each token, not of one for all: jnp.where(mask, values, 0.0).",
)
def every_value_counts(subject: Subject) -> None:
    """The critic's value at any policy token changes an advantage of its completion.

    With the value of the prompt for all tokens, a critic learns what nothing reads.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    for token in np.flatnonzero(fields["mask"][ROW]):
        found = []
        for value in (30.0, -30.0):  # beyond the returns, on which side of them a bounded advantage may depend alone
            changed = {name: fields[name].copy() for name in VALUES & fields.keys()}
            for values in changed.values():
                values[ROW, token] = value
            found.append(case.run(fields | changed).value[ROW])
        if np.allclose(*found, atol=1e-6):
            raise Failed(f"a value of 30 or of -30 at [{ROW}, {token}] makes no difference to any advantage")


@check(
    "correction",
    reads=["old_logps", "rollout_logps"],
    fix="Sum over the tokens of each completion, axis=1 with keepdims=True, and not over the batch.",
)
def corrects_what_is_off(subject: Subject) -> None:
    """If a single completion is far off, the others are treated alike, and not as that one.

    A ratio or a verdict over the whole batch punishes every completion for one, and depends on who shares the batch.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    agree = fields["old_logps"]
    for gap in (FAR_OFF, 1.0, -1.0, -FAR_OFF):
        off = agree.copy()
        off[ROW] -= np.float32(gap)
        result = case.run(fields | {"rollout_logps": off})
        kept = kept_tokens(result, fields)
        counts = np.where(kept, result.value, 0)
        others = counts[fields["mask"] & (np.arange(batch.ROWS) != ROW)[:, None]]
        own = counts[ROW][fields["mask"][ROW]]
        all_agreed = case.run(fields | {"rollout_logps": agree})
        usual = np.where(kept_tokens(all_agreed, fields), all_agreed.value, 0)[fields["mask"]]
        if (
            np.ptp(usual) < EPSILON
            and not np.allclose(others, usual[0], atol=EPSILON)
            and np.allclose(own.mean(), others.mean(), atol=EPSILON)
        ):
            raise Failed(
                f"with log-ratios of {gap:g} in one completion and 0 in all others, the others weigh"
                f" {others.mean():.6g} on average instead of {usual[0]:.6g}, as that one does"
            )


@check(
    "correction",
    reads=["old_logps", "rollout_logps"],
    unless="scales",
    fix="Weigh by the ratio, exp(old_logps - rollout_logps), once; the exponential keeps it positive.",
)
def no_more_than_the_ratio(subject: Subject) -> None:
    """If one token is off, which is a completion of its own, its weight is between 1 and its ratio, or zero; that of a
    token that the sampler draws far too rarely may fall again.

    A ratio that is applied twice corrects what is right already, and a negative weight trains a token the wrong way.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    weights = {gap: _weight(case, fields, gap) for gap in (0.3, -0.3, FAR_OFF, -FAR_OFF)}
    if np.isclose(weights[0.3], weights[-0.3], rtol=1e-3) and 0 <= weights[0.3] <= 1:
        raise Inapplicable("it weighs by how far off a token is, on either side alike, and not by the ratio")
    for gap, weight in weights.items():
        low, high = sorted((1.0, float(np.exp(gap))))
        low = 0.0 if gap == FAR_OFF else low
        if weight and not low - EPSILON <= weight <= high + EPSILON:
            raise Failed(f"where the log-ratio is {gap:g}, and the ratio {np.exp(gap):.6g}, the weight is {weight:.6g}")


def _weight(case: ArrayCase, fields: batch.Fields, gap: float) -> float:
    """Return the weight of a completion of one token whose log-ratio is this."""
    off = fields["old_logps"].copy()
    off[SHORT] -= np.float32(gap)
    result = case.run(fields | {"rollout_logps": off})
    return float(np.where(kept_tokens(result, fields), result.value, 0)[SHORT, 0])


@check(
    "correction",
    reads=["old_logps", "rollout_logps"],
    when=_float_named(CAP),
    fix="Take the smaller of the two: jnp.minimum(ratio, upper).",
)
def stays_below_its_cap(subject: Subject) -> None:
    """Where the sampler is far off, no weight is above a hyperparameter called `upper`, `cap` or `max_...`; one whose
    name says log, kl, divergence or entropy is in nats, and bounds something else.

    With the larger of the two instead of the smaller, one token may weigh as much as all others together.
    """
    caps = {name: value for name, value in _own(subject, CAP).items() if not IN_NATS.search(name)}
    if not caps:
        raise Inapplicable("it has no bound of the weights that is a float")
    case = ArrayCase.of(subject)
    fields = case.fields()
    for gap in (1.0, FAR_OFF, -FAR_OFF):
        off = (fields["old_logps"] - np.float32(gap)).astype(np.float32)
        result = case.run(fields | {"rollout_logps": off})
        most = float(np.where(kept_tokens(result, fields), result.value, 0).max())
        if most > max(*caps.values(), 1.0) + EPSILON:
            name = max(caps, key=lambda each: caps[each])
            raise Failed(f"with log-ratios of {gap:g} a token weighs {most:.6g}, and '{name}' is {caps[name]:g}")


@check(
    "group_filter",
    reads=["scores", "group_ids"],
    unless="compares",
    fix="Compare the highest with the lowest score, or use dovetail.arrays.Groups; x - mean(x) is rarely exactly zero.",
)
def rounding_decides_nothing(subject: Subject) -> None:
    """Groups of equal scores are judged by the score alone, whatever rounding does to a mean of it.

    The mean of three times 0.1 need not be 0.1, so that a group without a learning signal seems to have one.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    live = fields["mask"].any(axis=1)
    for group in np.unique(fields["group_ids"]):
        rows = live & (fields["group_ids"] == group)
        verdicts = []
        for score in np.linspace(0.013, 0.987, 41):
            equal = np.full(batch.ROWS, score, np.float32)
            verdicts.append(bool(case.run(batch.with_scores(fields, equal)).value[rows].any()))
        if (flips := int(np.count_nonzero(np.diff(verdicts)))) > FLIPS:
            raise Failed(f"of 41 groups of equal scores {sum(verdicts)} are kept, which changes {flips} times in a row")


@check(
    "reward_shaping",
    when=_float_named(COST),
    fix="Subtract it from the rewards, and see to the sign of what it is multiplied by.",
)
def costs_cost(subject: Subject) -> None:
    """A larger number called `..._cost` or `..._penalty` gives no completion a higher sum of rewards.

    With the sign turned, a run is paid for what its config says it should avoid.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    for name, value in _own(subject, COST).items():
        # a cost may be given as a negative number, and be a share, which is at most 1
        more = next((x for x in _costlier(value) if allows(subject.component, name, x)), value)
        before, after = (
            np.where(fields["mask"], case.run(fields, subject.floats | {name: np.float32(x)}).value, 0).sum(axis=1)
            for x in (value, more)
        )
        if (after > before + EPSILON).any():
            row = int(np.argmax(after - before))
            raise Failed(
                f"with '{name}' = {more:g} instead of {value:g} the rewards of completion {row} rise by"
                f" {after[row] - before[row]:.6g}"
            )


def _costlier(value: float) -> tuple[float, ...]:
    sign = 1.0 if value >= 0 else -1.0
    return (2 * value + sign * 0.5, sign * 1.0) if abs(value) < 1 else (2 * value + sign * 0.5,)


@check("reward_shaping", reads=["truncated"], fix="Penalise where `truncated` is true, not where it is false.")
def being_cut_off_does_not_pay(subject: Subject) -> None:
    """A completion that was cut off gets no more than the same one that ended by itself.

    Otherwise a policy learns never to finish.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    ended, cut = (
        np.where(fields["mask"], case.run(fields | {"truncated": np.full(batch.ROWS, whether)}).value, 0).sum(axis=1)
        for whether in (False, True)
    )
    if (cut > ended + EPSILON).any():
        row = int(np.argmax(cut - ended))
        raise Failed(f"cut off, completion {row} gets {cut[row] - ended[row]:.6g} more")


@check(
    "reward_manager",
    unless="needs_all",
    fix="Leave NaN out of maxima, minima and means: np.where(np.isnan(table), -np.inf, table).max(axis=1).",
)
def abstaining_is_absence(subject: Subject) -> None:
    """A completion on which a reward abstains is ranked among others like it as if there were no such reward.

    An abstention that counts as zero is a good reward among penalties: what is not judged beats what is.
    """
    manager: Any = subject.bind()
    scores = np.array([-2.0, -1.0, 0.5, 1.5])
    table = np.stack([scores, np.full(len(scores), np.nan)], axis=1)
    for names in (("first", "second"), ("second", "first")):
        ordered = table if names[0] == "first" else table[:, ::-1]
        found = np.asarray(manager(ordered.copy(), names))
        if subject.declared.get("needs_first") and np.isnan(ordered[0, 0]):
            continue
        if np.allclose(found, found[0]):
            continue  # it does not look at this reward
        if (np.diff(found) <= 0).all():
            continue  # it is for the check 'more_is_not_less'
        if not (np.diff(found) > 0)[_rises(manager, scores, names[0])].all():
            raise Failed(f"rewards of {scores.tolist()}, beside one that abstained, become {found.tolist()}")


def _rises(manager: Any, scores: np.ndarray, name: str) -> np.ndarray:
    """Tell from which of the scores to the next a manager rises where they are the only reward; it may have a floor."""
    try:
        alone = np.asarray(manager(scores[:, None].copy(), (name,)))
    except (DovetailError, ValueError, LookupError):
        return np.ones(len(scores) - 1, bool)
    return np.diff(alone) > 0


@check(
    "reward_manager",
    unless="absent_is_zero",
    when=lambda component: not ({"needs_all", "needs_first"} & {*component.declares}),
    fix="Divide by how many rewards there are for the completion: np.nanmean(table, axis=1).",
)
def a_mean_of_what_is_given(subject: Subject) -> None:
    """If rewards that are all 3 are 3 together, they are so also where one of them abstained.

    A mean that divides by all rewards scores a completion the lower the fewer of them have judged it.
    """
    manager: Any = subject.bind()
    names, levels = ("first", "second", "third"), np.array([3.0, -2.0, 0.5])
    full = np.repeat(levels[:, None], 3, axis=1)
    if not np.allclose(manager(full.copy(), names), levels):
        raise Inapplicable("it is no mean")
    for reward in range(3):
        partial = full.copy()
        partial[:, reward] = np.nan
        found = np.asarray(manager(partial, names))
        if not np.allclose(found, levels):
            raise Failed(f"without '{names[reward]}', rewards of {levels.tolist()} throughout are {found.tolist()}")
