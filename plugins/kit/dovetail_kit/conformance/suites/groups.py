"""Claims about losses, masks and shapings that compare the completions of a group."""

from __future__ import annotations

import numpy as np

from dovetail_kit.conformance import batch
from dovetail_kit.conformance.case import ArrayCase
from dovetail_kit.conformance.check import Failed, check
from dovetail_kit.conformance.compare import same
from dovetail_kit.conformance.subject import Subject


@check(
    "policy_loss",
    "loss_term",
    claim="whole_groups",
    fix="Compare completions of equal group_ids only, and divide by what is counted within the group.",
)
def groups_alone(subject: Subject) -> None:
    """The losses and gradients of a group's completions do not depend on the other groups in the micro-batch.

    Micro-batches of whole groups add up to the mini-batch only if groups are independent of one another.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    result = case.run(fields)
    labels = np.array(batch.GROUP_IDS)
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        (value, *_), _, gradients = case.pure(batch.take_rows(fields, rows), subject.floats)
        same(value, result.value[rows], f"group {label} by itself: the value")
        for name, gradient in result.gradients.items():
            same(gradients[name], gradient[rows], f"group {label} by itself: the gradient by {name}")


@check(
    "completion_filter",
    "loss_mask",
    "reward_shaping",
    reads=["scores", "group_ids"],
    unless="compares",
    fix="Take the best, the worst or the mean of each group, with dovetail.arrays.Groups; or declare compares=True.",
)
def other_groups_decide_nothing(subject: Subject) -> None:
    """Whether a completion is left out, and what it weighs or gets beside others of its group, does not depend on the
    scores of other groups, unless declared compares=True.

    The best of a batch, in place of the best of a prompt, leaves the easiest prompt to train on.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    ids, own = fields["group_ids"], np.linspace(0.2, 0.8, batch.ROWS, dtype=np.float32)
    for label in np.unique(ids):
        rows = ids == label
        found = [
            case.run(batch.with_scores(fields, np.where(rows, own, other))).value[rows]
            for other in (own, own + 5.0, own - 5.0, np.full(batch.ROWS, 0.5))
        ]
        first, *others = (value / max(np.abs(value).max(), 1e-6) for value in found)  # but for a factor of the batch
        for value in others:
            if not np.allclose(value, first, atol=1e-3, equal_nan=True):
                raise Failed(f"with other scores in the other groups, group {label} is treated in another way")
