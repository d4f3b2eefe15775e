"""Claims about advantage estimators."""

from __future__ import annotations

import numpy as np

from dovetail_kit.conformance import batch
from dovetail_kit.conformance.case import ArrayCase
from dovetail_kit.conformance.check import Failed, check
from dovetail_kit.conformance.compare import same
from dovetail_kit.conformance.subject import Subject
from dovetail_kit.conformance.suites.credit import critic

GROUPED = ["group_ids"]
WHITE = 0.1
"""How far from 0 and 1 the mean and the variance of few numbers may be, which depends on what they are divided by."""
SEVEN_AND_ONE = np.array([1, 1, 1, 8, 1, 1, 1, 1], np.int32)
"""A group of seven, because the sum of seven equal floats is rounded: their mean differs from them."""


@check(
    "advantage", fix="Subtract a baseline from the scores, in float32, and give the difference to every policy token."
)
def signal(subject: Subject) -> None:
    """Scores that differ give advantages that are not all zero, and scores of 1.003 and 1 other ones than equal scores.

    In bfloat16 the two are the same number.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    largest = np.abs(case.run(fields).value).max()
    if not largest > 1e-3:
        raise Failed(f"the largest advantage is {largest:.6g}")
    if "scores" not in fields:
        return
    odd = np.arange(batch.ROWS) % 2
    equal, near, far = (case.run(batch.with_scores(fields, 1.0 + gap * odd)).value for gap in (0.0, 0.003, 0.02))
    if np.array_equal(near, equal) and np.abs(far - equal).max() > 1e-3:  # what judges by a bound sees neither
        raise Failed("scores of 1.003 and 1 give the advantages of equal scores, and scores of 1.02 and 1 others")


@check(
    "advantage",
    reads=GROUPED,
    when=lambda component: critic(component) is None,
    unless="beyond_scores",
    fix="Subtract the group's lowest score before the mean; divide by (deviation + ε), or by 1 where it is zero. What"
    " judges something beside the group's scores, such as lengths or earlier steps, declares beyond_scores=True.",
)
def constant_group(subject: Subject) -> None:
    """A group of equal scores gets exactly zero, or the value that whitening over the batch shifts zero to.

    0/0 is NaN, and a rounding error of 1e-8 over a deviation of 1e-8 gives a spurious advantage of 1. Estimators that
    distinguish turns are checked on episodes of one turn.
    """
    case = ArrayCase.of(subject)
    fields = _of_one_turn(subject, case.fields())
    for score in (0.0, 1.0, 0.7, -0.1, 0.3, 1 / 3, 1.7, 1e6 + 0.3):
        scores = np.full(batch.ROWS, score, np.float32)
        scores[3] = 2.0
        found = case.run(batch.with_scores(fields | {"group_ids": SEVEN_AND_ONE}, scores)).value
        seen = fields["mask"] & (SEVEN_AND_ONE == 1)[:, None]
        _same_for_all(subject, found[seen], f"in a group where all scores are {score:g}")


@check(
    "advantage",
    reads=GROUPED,
    when=lambda component: critic(component) is None,
    unless="beyond_scores",
    fix="Divide by max(n - 1, 1), and let a group of one be its own baseline. What compares it with something else,"
    " such as the scores of earlier steps, declares beyond_scores=True.",
)
def group_of_one(subject: Subject) -> None:
    """A completion that is alone in its group gets zero, or the value that whitening over the batch shifts zero to.

    There is nothing to compare its score with. A raw score as the advantage, and NaN from dividing by n - 1, are both
    real bugs in well-known libraries. Estimators that distinguish turns are checked on episodes of one turn.
    """
    case = ArrayCase.of(subject)
    fields = _of_one_turn(subject, case.fields()) | {"group_ids": np.array([1, 2, 2, 3, 4, 4, 4, 4], np.int32)}
    scores = np.array([1.7, 0.0, 1.0, -4.0, 2.0, 0.0, 1.0, 0.0])
    mask = fields["mask"] | (np.arange(batch.TOKENS) < 1)  # the empty row gets a token, so its group has two
    found = case.run(batch.with_scores(batch.with_mask(fields, mask), scores)).value
    alone = mask & np.isin(np.arange(batch.ROWS), [0, 3])[:, None]
    _same_for_all(subject, found[alone], "of a completion that is alone in its group")


def _of_one_turn(subject: Subject, fields: batch.Fields) -> batch.Fields:
    return batch.in_one_turn(fields) if subject.declared.get("by_turn") else fields


def _same_for_all(subject: Subject, advantages: np.ndarray, where: str) -> None:
    wanted = advantages.flat[0] if subject.declared.get("whitened") else 0.0
    wrong = advantages[~(advantages == wanted)]
    if wrong.size:
        raise Failed(f"an advantage {where} is {wrong.flat[0]:.6g}, not {wanted:.6g}")


@check(
    "advantage",
    reads=GROUPED,
    unless="across_groups",
    when=lambda component: not component.declares.get("whitened"),
    fix="Take statistics over the rows of one group only. If the leak is intended, declare across_groups=True, or"
    " whitened=True if the results have mean 0 and variance 1 over the batch.",
)
def no_leak(subject: Subject) -> None:
    """The scores of one group do not change the advantages of another.

    What a prompt's completions are compared with would depend on which other prompts are in the batch.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    changed = fields["group_ids"] == 5
    base = np.linspace(-1, 1, batch.ROWS)
    before = case.run(batch.with_scores(fields, base)).value
    after = case.run(batch.with_scores(fields, base + 3 * changed * np.arange(batch.ROWS))).value
    same(after[~changed], before[~changed], "with other scores in another group: the advantage of row")


@check(
    "advantage",
    claim="whitened",
    fix="Drop the claim, or whiten last: dovetail.arrays.whiten(advantages, mask). What takes a part of its baseline or"
    " of its scale from other prompts is across_groups=True.",
)
def whitened(subject: Subject) -> None:
    """Over the policy tokens of a batch, or over its completions, the advantages have mean 0 and variance 1.

    The claim excuses from checks that groups and roles are kept apart, and says that a learning rate needs no regard to
    the scale of rewards.
    """
    case = ArrayCase.of(subject)
    for seed in range(2):
        fields = case.fields(seed)
        mask, value = fields["mask"], case.run(fields).value.astype(np.float64)
        live = mask.any(axis=1)
        of_rows = np.sum(np.where(mask, value, 0), axis=1)[live] / mask.sum(axis=1)[live]
        told = [(each.mean(), each.var()) for each in (value[mask], of_rows)]
        if not any(abs(mean) < WHITE and abs(variance - 1) < WHITE for mean, variance in told):
            raise Failed(
                "over policy tokens mean and variance are {:.4g} and {:.4g}, over completions {:.4g} and {:.4g}".format(
                    *(number for pair in told for number in pair)
                )
            )


@check(
    "advantage",
    reads=GROUPED,
    claim="shift_invariant",
    fix="Drop the claim, or subtract the group's mean before anything is squared.",
)
def shift_invariance(subject: Subject) -> None:
    """A constant added to all scores of a group changes nothing, a large one no more than rounding does.

    The claim tells that a reward's zero point does not matter; without it, the zero point is a hyperparameter.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    base = np.linspace(-1, 1, batch.ROWS) ** 3
    shift = np.where(fields["group_ids"] == 40, 2.3, -0.9)
    before = case.run(batch.with_scores(fields, base)).value
    after = case.run(batch.with_scores(fields, base + shift)).value
    same(after, before, "with a constant added to the scores: the advantage", within=1e-4)
    far = case.run(batch.with_scores(fields, base + 1000.0)).value
    same(far, before, "with 1000 added to the scores: the advantage", within=2e-2)


@check("advantage", reads=GROUPED, claim="zero_mean", fix="Drop the claim, or use the mean as the baseline.")
def zero_mean(subject: Subject) -> None:
    """The advantages of a group's completions add up to zero.

    The claim is what a loss without a baseline relies on.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    found = case.run(fields).value
    per_row = np.where(fields["mask"], found, 0).sum(axis=1) / np.maximum(fields["mask"].sum(axis=1), 1)
    for group in np.unique(fields["group_ids"]):
        total = per_row[fields["group_ids"] == group].sum()
        same(total, 0.0, f"the sum of the advantages of group {group}")


@check(
    "advantage",
    reads=["token_rewards"],
    fix="Add up the rewards of all tokens, wherever they are; find the ends of turns by `turns`, not by their rewards.",
)
def every_reward_counts(subject: Subject) -> None:
    """A reward on any policy token changes an advantage of its completion, at the token or before it.

    Rewards are at the ends of turns, where process rewards put them, and with a KL penalty on every token. Rewards that
    are ignored at some positions are lost unnoticed.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    for row, token in np.argwhere(fields["mask"]):
        found = []
        for reward in (5.0, -5.0):  # of two completions, normalised, only the order is seen
            rewards = fields["token_rewards"].copy()
            rewards[row, token] = reward
            found.append(case.run(fields | {"token_rewards": rewards}).value[row, : token + 1])
        if np.allclose(*found, atol=1e-6):
            raise Failed(f"a reward of 5 or of -5 at [{row}, {token}] makes no difference to any advantage up to there")
