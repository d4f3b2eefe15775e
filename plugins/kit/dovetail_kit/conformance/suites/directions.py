"""Directions of results: better scores count more, later rewards reach earlier tokens, corrections correct."""

from __future__ import annotations

from typing import Final

import numpy as np

from dovetail.errors import listing
from dovetail_kit.conformance import batch
from dovetail_kit.conformance.case import ArrayCase
from dovetail_kit.conformance.check import Failed, check
from dovetail_kit.conformance.compare import finite
from dovetail_kit.conformance.subject import Subject
from dovetail_kit.conformance.suites.batches import kept_tokens

EPSILON = 1e-4
FAR_OFF = 12.0
ROW = 0
"""A row of the batch that is full."""
APART: Final = ((0.0, 1.0), (-1.0, 1.0), (0.2, 0.9))
"""Scores of groups in which they differ."""


@check(
    "advantage",
    when=lambda component: (
        bool({"scores", "token_rewards"} & {*component.reads}) and not component.declares.get("beyond_scores")
    ),
    unless="not_monotone",
    fix="Check the sign: the score less the baseline, not the baseline less the score.",
)
def more_is_better(subject: Subject) -> None:
    """A completion whose score rises from 0 to 1, all else equal, gets no lower advantages, and some get higher ones.

    With the sign reversed, a run learns to fail, and its curves look normal at first.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    base = (np.arange(batch.ROWS) % 2).astype(np.float32)
    gains = []
    for row in np.flatnonzero(fields["mask"].any(axis=1)):
        low, high = (
            case.run(batch.with_scores(fields, np.where(np.arange(batch.ROWS) == row, score, base))).value[row]
            for score in (0.0, 1.0)
        )
        gains.append(float(np.where(fields["mask"][row], high - low, 0).sum()))
        if gains[-1] < -EPSILON:
            raise Failed(f"with a score of 1 instead of 0 the advantages of completion {row} fall by {-gains[-1]:.6g}")
    if max(gains) < EPSILON:
        raise Failed("a score of 1 instead of 0 raises the advantage of no completion")


@check(
    "advantage",
    reads=["score_table"],
    fix="Leave out what is NaN: jnp.where(jnp.isnan(table), 0.0, table), and counts.",
)
def abstentions(subject: Subject) -> None:
    """Where a reward abstained, which is NaN in score_table, advantages are finite, for the whole group.

    A reward that abstains on one completion would otherwise turn the whole update into NaN.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    for rows in ([ROW], list(range(batch.ROWS))):
        table = fields["score_table"].copy()
        table[rows, 0] = np.nan
        finite(np.where(fields["mask"], case.run(fields | {"score_table": table}).value, 0), "the advantage")


@check("advantage", reads=["score_table"], fix="Combine all columns of the table: it has one for each reward.")
def every_column_counts(subject: Subject) -> None:
    """Each reward, not only one of them, changes some advantages.

    A reward that is in the config, and in its metrics, would teach nothing.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    before = case.run(fields).value
    for column in range(batch.REWARDS):
        table = fields["score_table"].copy()
        table[:, column] = table[::-1, column]
        if np.allclose(case.run(fields | {"score_table": table}).value, before, atol=1e-6):
            raise Failed(f"other numbers in column {column} of score_table change nothing")


@check(
    "advantage",
    reads=["token_rewards"],
    unless="not_monotone",
    fix="Sum from each token to the end: reverse, accumulate, reverse again. What gives each token its own reward"
    " alone, or all tokens the return of the whole completion, declares not_monotone=True.",
)
def later_rewards_reach_back(subject: Subject) -> None:
    """A reward on the last token counts for earlier ones, and for the first one at least as much as one on the first
    token for the last.

    The consequences of a token come after it. Summed from the start, a token gets credit for earlier rewards; not
    summed at all, the score, which is on the last token, trains no other.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    first, last = np.flatnonzero(fields["mask"][ROW])[[0, -1]]
    before = case.run(fields).value[ROW]
    changes, found = {}, {}
    for token, other in ((last, first), (first, last)):
        rewards = fields["token_rewards"].copy()
        rewards[ROW, token] += 5.0
        found[int(token)] = case.run(fields | {"token_rewards": rewards}).value[ROW] - before
        changes[int(token)] = abs(float(found[int(token)][other]))
    earlier = found[int(last)][:last][fields["mask"][ROW, :last]]
    if not np.abs(earlier).max() > 1e-6:
        raise Failed(f"a reward on the last token changes the advantage of none of the {earlier.size} tokens before it")
    if changes[int(first)] > changes[int(last)] + EPSILON:
        raise Failed(
            f"a reward on the last token moves the first advantage by {changes[int(last)]:.6g}, and one on the first"
            f" token the last advantage by {changes[int(first)]:.6g}"
        )


@check("advantage", reads=["old_values"], fix="Return advantages + old_values as the returns, before any whitening.")
def returns_are_targets(subject: Subject) -> None:
    """Returns, the targets of the critic, are not the advantages.

    A critic that is trained on the advantages predicts nothing, and explains no variance.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    advantages, *returns = case.run(fields).values
    if returns and np.allclose(advantages[fields["mask"]], returns[0][fields["mask"]], atol=EPSILON):
        raise Failed("the returns are the advantages")


@check("value_loss", reads=["values", "returns"], fix="Square values - returns; take the larger of two losses.")
def towards_the_returns(subject: Subject) -> None:
    """Gradient descent moves no value away from its return, and some towards it, where the critic has not moved yet.

    A critic that is pushed away from the returns makes advantages worse from step to step.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    if "old_values" in fields:
        fields |= {"old_values": fields["values"]}
    pull = case.run(fields).gradients["values"] * (fields["values"] - fields["returns"])
    pull = np.where(fields["mask"], pull, 0)
    if (pull < -EPSILON).any():
        row, token = np.argwhere(pull < -EPSILON)[0]
        raise Failed(
            f"values[{row}, {token}] is {fields['values'][row, token]:.6g}, its return"
            f" {fields['returns'][row, token]:.6g}, and descending moves it away"
        )
    if not (pull > EPSILON).any():
        raise Failed("descending moves no value towards its return")


@check(
    "correction",
    reads=["old_logps", "rollout_logps"],
    fix="Weigh by exp(old_logps - rollout_logps): what the sampler draws too often counts less.",
)
def corrects(subject: Subject) -> None:
    """If the sampler is far off, something is corrected, and tokens that it draws too often never get more weight.

    With the ratio inverted, a correction doubles the mismatch instead of removing it.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    mask, same = fields["mask"], fields["old_logps"]
    agreed = case.run(fields | {"rollout_logps": same})
    found = {}
    for gap in (0.05, -0.05, 1.0, -1.0, FAR_OFF, -FAR_OFF):
        result = case.run(fields | {"rollout_logps": (same - np.float32(gap)).astype(np.float32)})
        found[gap] = (result.value, kept_tokens(result, fields))
    spread = np.where(np.arange(batch.TOKENS) % 2, 3.0, -3.0).astype(np.float32) * mask
    mixed = case.run(fields | {"rollout_logps": same + spread})
    changed = [*found.values(), (mixed.value, kept_tokens(mixed, fields))]
    if all(np.allclose(value, agreed.value) and (kept == mask).all() for value, kept in changed):
        raise Failed(f"nothing is corrected, even where log-probabilities differ by {FAR_OFF:g}")
    for gap in (0.05, 1.0, FAR_OFF):
        (more, kept), (less, also) = found[gap], found[-gap]
        both = kept & also
        if (less[also] > agreed.value[also] + EPSILON).any():
            raise Failed(
                f"a token that the sampler draws {np.exp(gap):.3g} times too often weighs {less[also].max():.6g}, more"
                f" than {agreed.value[also].max():.6g}, where they agree"
            )
        if (more[both] < less[both] - EPSILON).any():
            raise Failed(
                f"a token that the sampler draws {np.exp(gap):.3g} times too often weighs"
                f" {less[both].max():.6g}, and one that it draws so much too rarely {more[both].min():.6g}"
            )


@check(
    "group_filter",
    reads=["scores"],
    fix="Keep the groups whose scores differ, and leave out others: a run has one group filter. If it looks at more"
    " than scores, declare settings={'name': value} with which some of the checks' small groups pass.",
)
def keeps_what_differs(subject: Subject) -> None:
    """A group of equal scores is kept only if groups whose scores differ are kept too; some of the latter are kept, and
    some group is left out. All completions have ended by themselves.

    Equal scores have no advantages. An inverted filter discards exactly the groups with a learning signal.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    if "truncated" in fields:  # what was cut off may be no evidence
        fields |= {"truncated": np.zeros(batch.ROWS, bool)}
    ids = fields["group_ids"] if "group_ids" in fields else np.array(batch.GROUP_IDS)
    live = fields["mask"].any(axis=1)
    ever = dropped = False
    for low, high in APART:
        for equal in (low, high):
            scores = np.where(ids == 5, np.where(np.arange(batch.ROWS) == 0, low, high), equal)
            kept = case.run(batch.with_scores(fields, scores)).value
            differing, constant = kept[live & (ids == 5)].all(), kept[live & (ids != 5)].any()
            ever |= bool(differing)
            dropped |= not kept[live].all()
            if constant and not differing:
                raise Failed(f"groups of {equal:g} alone are kept, and one of {low:g} and {high:g} is not")
    if not (ever or _keeps_two_against_two(case, fields, ids)):
        tried = listing(f"{low:g} and {high:g}" for low, high in APART)
        raise Failed(f"no group whose scores differ is kept, be they {tried}")
    for equal in () if dropped else (-100.0, 100.0):
        dropped |= not case.run(batch.with_scores(fields, np.full(batch.ROWS, equal))).value[live].all()
    if not dropped:
        raise Failed("every group is kept, whatever its scores are")


def _keeps_two_against_two(case: ArrayCase, fields: batch.Fields, ids: np.ndarray) -> bool:
    """Tell whether a group of four is kept in which each of two scores is that of two completions."""
    rows = np.flatnonzero(ids == 5)
    full = batch.with_mask(fields, fields["mask"] | (np.arange(batch.TOKENS) < 1))
    if "truncated" in full:
        full |= {"truncated": np.zeros(batch.ROWS, bool)}
    scores = np.isin(np.arange(batch.ROWS), rows[:2]).astype(float)
    return bool(case.run(batch.with_scores(full, scores)).value[rows].all())


@check("reward_shaping", reads=["token_rewards"], fix="Return token_rewards and what is added to them.")
def keeps_what_it_was_given(subject: Subject) -> None:
    """Different rewards on policy tokens give a different result, on several batches.

    Shapings form a chain; one that ignores its input discards the earlier ones, and the scores.
    """
    case = ArrayCase.of(subject)
    for seed in range(2):
        fields = case.fields(seed)
        rewards = np.where(fields["mask"], fields["token_rewards"] + 1, 0).astype(np.float32)
        if np.allclose(case.run(fields | {"token_rewards": rewards}).value, case.run(fields).value, atol=EPSILON):
            raise Failed("rewards that are higher by 1 change nothing")


@check("advantage", reads=["greedy_scores"], unless="not_monotone", fix="Subtract greedy_scores: they are a baseline.")
def the_greedy_score_is_a_baseline(subject: Subject) -> None:
    """Better greedy completions raise no advantage, and lower some; if advantages are whitened, a better one of a
    single prompt lowers the sum of its completions' advantages.

    Added instead of subtracted, it rewards whatever is sampled where the policy is good already.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    whitened = bool(subject.declared.get("whitened"))  # then what is added to all scores of the batch cancels out
    better = (np.array(batch.GROUP_IDS) == batch.GROUP_IDS[ROW]) | (not whitened)
    low, high = (
        np.where(fields["mask"], case.run(fields | {"greedy_scores": scores}).value, 0)
        for scores in (np.zeros(batch.ROWS, np.float32), better.astype(np.float32))
    )
    gain = (high - low).sum(axis=1)
    if whitened:
        if not gain[better].sum() < -EPSILON:
            raise Failed(
                f"with greedy scores of 1 instead of 0 for one prompt the advantages of its completions change by"
                f" {gain[better].sum():.6g} in all"
            )
    elif gain.max() > EPSILON or not gain.min() < -EPSILON:
        row = int(np.argmax(gain))
        raise Failed(
            f"with greedy scores of 1 instead of 0 the advantages of completion {row} change by {gain[row]:.6g}"
        )


@check(
    "advantage",
    claim="shift_invariant",
    unless="not_monotone",
    when=lambda component: not component.declares.get("beyond_scores") and not component.declares.get("whitened"),
    fix="Leave a completion's own score out of what it is compared with, and compare with all others. What only"
    " suppresses, on purpose, says so in expected_failures={'the_best_is_reinforced': ...}.",
)
def the_best_is_reinforced(subject: Subject) -> None:
    """Of a group with one best completion, some token of that has a positive advantage.

    Compared with the best of the group, itself included, no completion is ever made likelier.
    """
    case = ArrayCase.of(subject)
    fields = batch.in_one_turn(case.fields())
    if "role_ids" in fields:  # who is alone in its role has nobody to be compared with
        fields |= {"role_ids": np.zeros_like(fields["role_ids"])}
    for row in np.flatnonzero(fields["mask"].any(axis=1) & (np.array(batch.GROUP_IDS) == batch.GROUP_IDS[ROW])):
        scores = np.where(np.arange(batch.ROWS) == row, 1.0, np.arange(batch.ROWS) % 3 / 4)
        advantages = case.run(batch.with_scores(fields, scores)).value[row]
        if not (np.where(fields["mask"][row], advantages, 0) > EPSILON).any():
            others = scores[(np.array(batch.GROUP_IDS) == batch.GROUP_IDS[ROW]) & (np.arange(batch.ROWS) != row)]
            raise Failed(
                f"beside scores of {others.tolist()} a completion with a score of 1 has advantages of"
                f" {advantages[fields['mask'][row]].max():.6g} at most"
            )


@check(
    "correction",
    reads=["old_logps", "rollout_logps"],
    fix="Include the token itself: jnp.cumsum(log_ratio) up to and with it, not up to the one before.",
)
def a_single_token_is_corrected(subject: Subject) -> None:
    """In a completion of one token, a sampler that is far off is corrected: its weight is not 1, or it is left out.

    A product of the ratios before a token, its own left out, never corrects the first one.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    mask = np.zeros_like(fields["mask"])
    mask[:, 0] = True
    fields = batch.with_mask(fields, mask)
    for gap in (FAR_OFF, -FAR_OFF):
        gaps = np.where(np.arange(batch.ROWS) == ROW, gap, 0)[:, None]
        sampled = (fields["old_logps"] - gaps).astype(np.float32)
        result = case.run(fields | {"rollout_logps": sampled})
        if not kept_tokens(result, fields)[ROW, 0] or abs(result.value[ROW, 0] - 1) > EPSILON:
            return
    raise Failed(f"a completion of one token, {FAR_OFF:g} nats from what the sampler says, is kept with a weight of 1")


@check(
    "correction",
    reads=["old_logps", "rollout_logps"],
    when=lambda component: {"lower", "upper"} <= {*component.params},
    fix="Compare the ratio with the bounds, or its logarithm with theirs: jnp.log(upper).",
)
def within_its_bounds(subject: Subject) -> None:
    """Where every ratio of a completion is above `upper`, or below `lower`, it is left out, or weighs something else
    than one whose ratios are 1.

    Bounds of a ratio that are compared with its logarithm let through what they are there to stop.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    low, high = (subject.params[name] for name in ("lower", "upper"))
    for ratio in (*(high * by for by in (1.5, 10) if high), *(low / by for by in (1.5, 10) if low)):
        gaps = np.where(np.arange(batch.ROWS) == ROW, np.log(ratio), 0)[:, None]
        result = case.run(fields | {"rollout_logps": (fields["old_logps"] - gaps).astype(np.float32)})
        kept, mask = kept_tokens(result, fields), fields["mask"]
        others = result.value[ROW + 1 :][mask[ROW + 1 :]]
        if kept[ROW][mask[ROW]].any() and np.allclose(result.value[ROW][mask[ROW]], others.mean(), rtol=1e-3):
            raise Failed(
                f"with lower = {low} and upper = {high} a completion whose ratios are {ratio:.4g} is kept, and weighs"
                f" {others.mean():.5g} like those whose ratios are 1"
            )
