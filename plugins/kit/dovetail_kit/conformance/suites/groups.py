"""Claims about losses that compare the completions of a group."""

from __future__ import annotations

import numpy as np

from dovetail_kit.conformance import batch
from dovetail_kit.conformance.case import ArrayCase
from dovetail_kit.conformance.check import check
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
