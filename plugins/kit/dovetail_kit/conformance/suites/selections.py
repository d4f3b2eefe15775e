"""Claims about what filters, shapings and masks leave: for each group, for each reward, for each token."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.errors import listing
from dovetail.ranges import bounds
from dovetail_kit.conformance import batch
from dovetail_kit.conformance.case import ArrayCase, without_key
from dovetail_kit.conformance.check import Failed, check
from dovetail_kit.conformance.compare import Result, same
from dovetail_kit.conformance.subject import Subject
from dovetail_kit.conformance.suites.directions import EPSILON
from dovetail_kit.conformance.suites.values import ARRAYS

LEVELS = tuple(np.linspace(-2, 2, 17))
FEW = 3
"""A shaping may tell failure, success and what is between apart, and no more."""
ALONE = 5
"""The label of the largest group, which has the empty row."""


@check(
    "group_filter",
    reads=["scores"],
    unless="compares",
    fix="Judge each group by its own completions, those with policy tokens; or declare compares=True.",
)
def each_group_by_itself(subject: Subject) -> None:
    """Whether a group is kept depends neither on other groups nor on its completions without policy tokens.

    A spread over the whole batch keeps groups of equal scores, and an empty row that counts as a zero makes every group
    of ones look mixed.
    """
    case = ArrayCase.of(subject)
    _as_alone(case, case.fields(), case.fields().get("group_ids", np.array(batch.GROUP_IDS)))
    for empty in (0, 1, 2):
        fields = case.fields()
        ids = fields.get("group_ids", np.array(batch.GROUP_IDS))
        mask = fields["mask"].copy()
        mask[np.flatnonzero((ids == ALONE) & mask.any(axis=1))[:empty]] = False
        _apart_from_the_others(case, batch.with_mask(fields, mask), ids)


def _as_alone(case: ArrayCase, fields: batch.Fields, ids: Any) -> None:
    """Complain if a group is kept or left out because of how far apart the scores of other groups are."""
    rows = np.flatnonzero(ids == ALONE)
    own = np.linspace(0.2, 0.6, len(rows))
    alone = case.eager(batch.take_rows(batch.with_scores(fields, _among(ids, rows, own, 0.0)), rows)).value
    for width in (0.0, 0.1, 30.0):
        beside = case.run(batch.with_scores(fields, _among(ids, rows, own, width))).value[rows]
        if not np.array_equal(alone, beside):
            raise Failed(
                f"a group with the scores {own.round(2).tolist()} is {'kept' if alone.any() else 'left out'} by itself,"
                f" and {'kept' if beside.any() else 'left out'} beside groups whose scores are {width:g} apart"
            )


def _among(ids: Any, rows: Any, own: np.ndarray, width: float) -> np.ndarray:
    scores = width * (np.arange(len(ids)) % 2).astype(np.float32)
    scores[rows] = own
    return scores


def _apart_from_the_others(case: ArrayCase, fields: batch.Fields, ids: Any) -> None:
    """Complain if a group of equal scores is kept beside others, or beside its empty rows, and not by itself."""
    live = fields["mask"].any(axis=1)
    mixed = (np.arange(batch.ROWS) % 3 == 0).astype(np.float32)
    for equal in (1.0, 0.0):
        scores = np.where(ids == ALONE, equal, mixed)
        among = case.run(batch.with_scores(fields, scores)).value
        rows = np.flatnonzero((ids == ALONE) & live)
        alone = case.eager(batch.take_rows(batch.with_scores(fields, scores), rows)).value
        if not np.array_equal(alone, among[rows]):
            raise Failed(
                f"a group whose scores are all {equal:g} is {'kept' if among[rows].any() else 'left out'} beside other"
                f" groups and {(ids == ALONE).sum() - len(rows)} empty rows of its own, and"
                f" {'kept' if alone.any() else 'left out'} without them"
            )


@check(
    "reward_shaping",
    reads=["token_rewards"],
    unless="not_monotone",
    fix="Add to token_rewards, and replace none of them; what scales by the largest declares not_monotone=True.",
)
def every_reward_is_kept(subject: Subject) -> None:
    """A higher reward at a policy token does not lower the sum over its completion, and at the last one may raise it,
    there and not before it alone; rewards are not rounded.

    The score is on the last policy token: a shaping that writes a penalty there, instead of adding it, forgets it. What
    is moved to an earlier token is not a consequence of those after it.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    mask, count = fields["mask"], np.cumsum(fields["mask"], axis=1)
    for where, token in ((mask & (count == 1), "first"), (mask & (count == count[:, -1:]), "last")):
        totals = []
        for reward in (-4.0, -2.0, 0.0, 2.0):
            rewards = np.where(where, np.float32(reward), fields["token_rewards"])
            totals.append(np.where(mask, case.run(fields | {"token_rewards": rewards}).value, 0).sum(axis=1))
        steps = np.diff(totals, axis=0)
        if (steps < -EPSILON).any():
            row = int(np.argwhere(steps < -EPSILON)[0][1])
            told = listing(f"{total[row]:.6g}" for total in totals)
            raise Failed(f"as the reward at the {token} token rises, the sum over completion {row} falls: {told}")
        if token == "last" and not (steps > EPSILON).any():
            raise Failed("the reward at the last token makes no difference to the sum over a completion")
    _seen_at_the_last(case, fields, (steps > EPSILON).any(axis=0))


def _seen_at_the_last(case: ArrayCase, fields: batch.Fields, counts: Any) -> None:
    """Complain if rewards at the last token, where they count, count before it alone, or are rounded."""
    mask = fields["mask"]
    last = mask & (np.cumsum(mask[:, ::-1], axis=1)[:, ::-1] == 1)
    given = [np.where(last, np.float32(reward), fields["token_rewards"]) for reward in LEVELS]
    made = np.array([case.run(fields | {"token_rewards": rewards}).value[last] for rewards in given])
    rows = np.flatnonzero(mask.any(axis=1))
    gone = rows[counts[rows] & (np.ptp(made, axis=0) < EPSILON)]
    if gone.size:
        raise Failed(f"the reward at the last token of completion {gone[0]} counts only at tokens before it")
    told = max(len(set(each.tolist())) for each in made.T)
    if FEW < told < len(LEVELS) / 2:
        raise Failed(f"of {len(LEVELS)} different rewards at the last token it makes {told}")


@check(
    "reward_shaping",
    reads=["scores", "token_rewards"],
    fix="Add what a score earns at the last policy token, once: jnp.where(last, bonus[:, None], 0.0).",
)
def a_score_counts_once(subject: Subject) -> None:
    """What a completion gets for its score does not grow with its length.

    A bonus that is added at every token is as many times as large as a completion is long: long ones are paid for it.
    """
    low, high = ({"scores": np.full(batch.ROWS, score, np.float32)} for score in (0.0, 1.0))
    one, full = _effects_by_length(ArrayCase.of(subject), low, high)
    if full > 2 * one + EPSILON:
        raise Failed(
            f"a score of 1 instead of 0 changes the sum of a completion of one token by {one:.6g}, of one of"
            f" {batch.TOKENS} by {full:.6g}"
        )


@check(
    "reward_shaping",
    reads=["truncated"],
    fix="Subtract it once, at the last policy token, and not at every token of the completion.",
)
def being_cut_off_costs_once(subject: Subject) -> None:
    """What a completion loses for being cut off does not grow with its length.

    A penalty that is subtracted at every token is as many times as large as a completion is long.
    """
    ended, cut = ({"truncated": np.full(batch.ROWS, whether)} for whether in (False, True))
    one, full = _effects_by_length(ArrayCase.of(subject), ended, cut)
    if full > 2 * one + EPSILON:
        raise Failed(f"cut off, a completion of one token loses {one:.6g}, one of {batch.TOKENS} {full:.6g}")


def _effects_by_length(case: ArrayCase, before: batch.Fields, after: batch.Fields) -> list[float]:
    """Return by how much other fields change the sum of rewards of a completion: of one token, and of a full one.

    What is changed at one token alone is a price of length, as the fields may ask for it: it counts as for one token.
    """
    fields = case.fields()
    rows, columns, found = fields["mask"].any(axis=1, keepdims=True), np.arange(batch.TOKENS), []
    for length in (1, batch.TOKENS):
        mask = rows & (columns < length)
        last = np.where(rows & (columns == length - 1), 1.0, 0.0).astype(np.float32)
        given = batch.with_mask(fields, mask) | {"token_rewards": last}
        unshaped, shaped = (np.where(mask, case.run(given | each).value, 0) for each in (before, after))
        once = (np.abs(shaped - unshaped) > EPSILON).sum(axis=1).max() <= 1
        found.append(float(np.abs((shaped - unshaped).sum(axis=1)).max()) if length == 1 or not once else 0.0)
    return found


@check("loss_mask", fix="Weigh a token by zero or more; the sign is the advantage's business.")
def never_negative(subject: Subject) -> None:
    """No weight is negative: that would train a token against its advantage.

    The advantage alone says in which direction a token is trained.
    """
    case = ArrayCase.of(subject)
    bad = batch.with_scores(case.fields(), np.linspace(-2, 1, batch.ROWS))
    for fields in (case.fields(), case.fields(1), bad):
        least = np.where(fields["mask"], case.run(fields).value.astype(np.float32), 0).min()
        if least < 0:
            raise Failed(f"the lowest weight is {least:.6g}")


@check(*ARRAYS, when=without_key, fix="Divide by counts of the mask, never by a width; take shares of policy tokens.")
def padding_for_other_numbers(subject: Subject) -> None:
    """Columns of padding change nothing under other values of the float hyperparameters either, nor where everything is
    farther apart.

    A share of the padded width may go unnoticed at its default, or while no bound is met, and count otherwise.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    for factor in (1.5, 8.0):
        far = batch.scaled(fields, factor)
        _same_when_wider(far, case.eager(batch.widened(far, batch.TOKENS)), case.run(far), f"{factor:g} times as far")
    own = {name: value for name, value in subject.floats.items() if name not in subject.component.common}
    others = {
        f"with {factor:g} times its numbers": {name: value * factor for name, value in own.items()}
        for factor in ((0.5, 0.2) if own else ())
    }
    others |= {f"with {name} = 0": {name: 0.0} for name in own if may_be_zero(subject.component.hints[name])}
    for how, numbers in others.items():
        floats = {name: np.float32(value) for name, value in numbers.items()}
        wide = case.eager(batch.widened(fields, batch.TOKENS), **floats)
        _same_when_wider(fields, wide, case.run(fields, subject.floats | floats), how)


def may_be_zero(hint: Any) -> bool:
    """Tell whether an annotation says that zero is in its range: what has no range may be divided by."""
    return bool(bounds(hint)) and all(bound.holds(0.0) for bound in bounds(hint))


def _same_when_wider(fields: batch.Fields, wide: Result, narrow: Result, how: str) -> None:
    for ours, theirs in zip(wide.values, narrow.values, strict=True):
        cut = ours[:, : batch.TOKENS] if ours.ndim > 1 and ours.shape[1] == 2 * batch.TOKENS else ours
        where = fields["mask"] if theirs.shape[:2] == fields["mask"].shape else True
        same(cut, theirs, f"{how}, and twice the width: the value", where=where)
