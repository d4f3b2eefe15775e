"""Claims about corrections, loss masks and filters, which see a whole batch."""

from __future__ import annotations

import numpy as np

from dovetail_kit.conformance import batch
from dovetail_kit.conformance.case import ArrayCase
from dovetail_kit.conformance.check import Failed, check
from dovetail_kit.conformance.compare import Result, finite, same
from dovetail_kit.conformance.subject import Subject

FLAWS = ("truncated", "void_turns", "tool_errors")
"""Fields that say what went wrong in a completion."""


@check(
    "completion_filter",
    "correction",
    "loss_mask",
    fix="End with kept & mask, so that nothing is kept where the mask is false.",
)
def keeps_within_the_mask(subject: Subject) -> None:
    """Only policy tokens are kept, and tokens that are not kept have weight zero.

    A loss on padding or on the output of tools trains the policy on text that it has not written.
    """
    case = ArrayCase.of(subject)
    fields = _mismatched(case.fields())
    result = case.run(fields)
    if subject.component.kind == "correction" and len(result.values) != 2:
        raise Failed(f"it returns {len(result.values)} values, not (is_weights, mask to keep)")
    kept = result.value if subject.component.kind == "completion_filter" else kept_tokens(result, fields)
    if kept.dtype != bool:
        raise Failed(f"the mask to keep has type {kept.dtype}")
    if (kept & ~fields["mask"]).any():
        raise Failed(f"{(kept & ~fields['mask']).sum()} tokens outside the mask are kept")
    if subject.component.kind == "correction" and result.value[~kept].any():
        raise Failed("a token that is not kept has a weight")


@check(
    "correction",
    unless="scales",
    fix="Take the ratio of the same token under both policies: exp(old_logps - rollout_logps), which is 1 here.",
)
def no_mismatch(subject: Subject) -> None:
    """If sampler and trainer agree, nothing is corrected: every weight is 1 and every token is kept.

    A correction that corrects what is right scales the learning rate, unseen.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    result = case.run(fields | {"rollout_logps": fields["old_logps"]} if "old_logps" in fields else fields)
    same(result.value, fields["mask"].astype(np.float32), "without mismatch: the weight")
    same(kept_tokens(result, fields), fields["mask"], "without mismatch: the mask to keep")


@check("correction", reads=["rollout_logps"], fix="Bound the log-ratio before you exponentiate it.")
def extremes(subject: Subject) -> None:
    """Log-ratios of ±200 and ±10⁴ give finite weights.

    A stale policy gives such ratios, and one infinite weight destroys the update.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    for shift in (200.0, -200.0, 1e4, -1e4):
        moved = batch.farther(fields, "rollout_logps", shift)
        finite(case.run(moved).value, f"with rollout_logps moved by {shift:g}: the weight")


@check(
    "correction",
    reads=["old_logps", "rollout_logps"],
    fix="Reject nothing because of a NaN: write ~(ratio > bound) instead of ratio <= bound.",
)
def nan_is_seen(subject: Subject) -> None:
    """A NaN at a policy token is neither corrected away nor rejected.

    A NaN that is rejected hides that something is wrong with the sampler.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    broken = fields["old_logps"].copy()
    broken[0, 0] = np.nan
    result = case.run(fields | {"rollout_logps": broken})
    kept = kept_tokens(result, fields)
    if not kept[0, 0]:
        raise Failed("rollout_logps[0, 0] is NaN, but the token is rejected")
    if not np.isnan(result.value[0, 0]) and not (result.value[fields["mask"]] == 1).all():
        raise Failed(f"rollout_logps[0, 0] is NaN, but the weight there is {result.value[0, 0]:.6g}")


@check("group_filter", fix="Reduce over each group, and give all of its rows the same answer.")
def whole_groups(subject: Subject) -> None:
    """A group is kept or excluded as a whole.

    The completions that are left of a group would be compared with a baseline of fewer, chosen ones.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    at_the_mean = np.array([0, 1, 0, 0, 1, 0.5, 0, 1])  # the largest group, whose third row is empty, has 0, ½ and 1
    for scores in (np.arange(batch.ROWS) % 2, np.arange(batch.ROWS) > 3, np.linspace(0, 1, batch.ROWS), at_the_mean):
        kept = case.run(batch.with_scores(fields, scores)).value
        live = fields["mask"].any(axis=1)
        for group in np.unique(fields["group_ids"]):
            if len(set(kept[live & (fields["group_ids"] == group)].tolist())) > 1:
                raise Failed(f"group {group} is kept only in part")


@check("completion_filter", fix="Reduce over the tokens or turns of a completion, and give all its tokens the answer.")
def whole_completions(subject: Subject) -> None:
    """A completion is kept or excluded as a whole; to exclude single tokens, use a loss mask or a correction.

    Baselines and lengths are about whole completions; those of a half are about nothing that was sampled.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    kept, mask = case.run(fields).value, fields["mask"]
    if (kept.any(axis=1) & (kept != mask).any(axis=1)).any():
        raise Failed("of a completion some policy tokens are kept and others are not")


@check(
    "completion_filter",
    "loss_mask",
    when=lambda component: bool({*FLAWS} & {*component.reads}),
    fix="Keep where the flag is false: mask & ~truncated[:, None].",
)
def flaws_do_not_help(subject: Subject) -> None:
    """A completion that was cut off, or has turns without usable text or with errors, is not kept for that reason.

    With the condition inverted, a run learns from failures of this kind and from nothing else.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    for name in FLAWS:
        if name in fields:
            with_it, without = (
                case.run(fields | {name: np.full_like(fields[name], flag)}).value for flag in (True, False)
            )
            more = (with_it > without) & fields["mask"]
            if more.any():
                raise Failed(f"with '{name}' true {more.sum()} tokens are kept, or weigh more, that are not without it")


@check("completion_filter", "loss_mask", fix="Compare with a bound that some token passes.")
def selects(subject: Subject) -> None:
    """It keeps something of an ordinary batch.

    A run in which nothing is trained looks like one that has converged.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    if not (case.run(fields).value[fields["mask"]] != 0).any():
        raise Failed("every weight is zero")


def kept_tokens(result: Result, fields: batch.Fields) -> np.ndarray:
    """Return which tokens a correction or filter keeps."""
    return result.values[1] if len(result.values) > 1 else fields["mask"]


def _mismatched(fields: batch.Fields) -> batch.Fields:
    """Return the fields of a sampler so far off that a correction has something to do."""
    if not {"rollout_logps", "old_logps"} <= fields.keys():
        return fields
    noise = np.random.default_rng(0).normal(scale=1.0, size=fields["mask"].shape).astype(np.float32)
    return fields | {"rollout_logps": fields["old_logps"] + noise}
