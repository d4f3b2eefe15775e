"""Claims about the losses of a critic."""

from __future__ import annotations

import numpy as np

from dovetail_kit.conformance.case import ArrayCase
from dovetail_kit.conformance.check import Failed, check
from dovetail_kit.conformance.subject import Subject

TINY = 1e-6
FINE = 0.01
"""A step of the error, within which a loss whose slope is bounded changes little."""


@check(
    "value_loss",
    reads=["values", "returns"],
    fix="Look at where one formula ends and the next begins: Huber's is quadratic for small errors.",
)
def no_error_no_loss(subject: Subject) -> None:
    """No loss is negative, and none is smaller than that of a value which equals its return.

    Two branches that are exchanged give a loss with its steepest slope where the critic is right.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    mask, returns = fields["mask"], fields["returns"]

    def losses(error: float) -> np.ndarray:
        values = (returns + np.float32(error)).astype(np.float32)
        both = {name: values for name in ("values", "old_values") if name in fields}
        return case.run(fields | both).value[mask]

    right = losses(0.0)
    if right.min() < -TINY:
        raise Failed(f"where the value is its return, the loss is {right.min():.6g}")
    for error in (0.1, -0.1, 0.6, -0.6, 4.0, -4.0):
        wrong = losses(error)
        if (wrong < right - TINY).any():
            least = int(np.argmin(wrong - right))
            raise Failed(f"with an error of {error:g} the loss is {wrong[least]:.6g}, and {right[least]:.6g} without")


@check(
    "value_loss",
    reads=["values", "returns"],
    unless="surrogate",
    fix="Let the formulas agree where one ends and the next begins: Huber's line is δ (|e| - δ/2), with the factor δ.",
)
def no_jumps(subject: Subject) -> None:
    """As an error grows, the loss changes by no more than its slopes say, also where one formula ends and another
    begins.

    A branch without its factor is continuous for one value of a hyperparameter alone: for the others the far branch has
    another slope than the critic's config says.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    mask, returns = fields["mask"], fields["returns"]
    before: tuple[np.ndarray, np.ndarray] | None = None
    for error in np.arange(-3.0, 3.0, FINE):
        values = (returns + np.float32(error)).astype(np.float32)
        result = case.run(fields | {name: values for name in ("values", "old_values") if name in fields})
        loss, slope = result.value[mask], np.abs(result.gradients["values"][mask])
        if before is not None:
            jump = np.abs(loss - before[0]) - 2 * FINE * np.maximum(slope, before[1])
            if (jump > FINE * FINE).any():
                at = int(np.argmax(jump))
                raise Failed(
                    f"with an error of {error:.2f} instead of {error - FINE:.2f} the loss jumps from"
                    f" {before[0][at]:.6g} to {loss[at]:.6g}"
                )
        before = loss, slope
