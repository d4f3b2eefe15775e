"""Claims about the losses of a critic."""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from dovetail.registry import Component
from dovetail_kit.conformance.case import ArrayCase
from dovetail_kit.conformance.check import Failed, check
from dovetail_kit.conformance.subject import Subject, allows

TINY = 1e-6
QUANTILE: Final = re.compile(r"^(tau|quantile|expectile)$")
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
    weights = np.where(mask, fields["weights"], 0)
    for error in np.arange(-3.0, 3.0, FINE):
        values = (returns + np.float32(error)).astype(np.float32)
        result = case.run(fields | {name: values for name in ("values", "old_values") if name in fields})
        # of whole completions, since a token's loss may depend on the values beside it
        loss = (weights * np.where(mask, result.value, 0)).sum(axis=1)
        slope = np.abs(np.where(mask, result.gradients["values"], 0).sum(axis=1))
        if before is not None:
            jump = np.abs(loss - before[0]) - 2 * FINE * np.maximum(slope, before[1])
            if (jump > FINE * FINE).any():
                at = int(np.argmax(jump))
                raise Failed(
                    f"with errors of {error:.2f} instead of {error - FINE:.2f} the loss of completion {at} jumps from"
                    f" {before[0][at]:.6g} to {loss[at]:.6g}"
                )
        before = loss, slope


def _quantiles(component: Component) -> list[str]:
    return [name for name in component.params if QUANTILE.search(name)]


@check(
    "value_loss",
    reads=["values", "returns"],
    when=lambda component: bool(_quantiles(component)),
    fix="Weigh by tau where the value is below its return, and by 1 - tau where it is above.",
)
def a_higher_quantile_is_higher(subject: Subject) -> None:
    """The larger a number called `tau`, `quantile` or `expectile` is, the higher the value that the critic settles at.

    With the two sides exchanged, a critic that is to be optimistic underestimates what can be reached.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    side = np.where(np.arange(fields["mask"].shape[1]) % 2, 1.0, -1.0).astype(np.float32)
    values = {
        name: (fields["returns"] + side).astype(np.float32) for name in ("values", "old_values") if name in fields
    }
    for name in _quantiles(subject.component):
        if name not in subject.floats or not all(allows(subject.component, name, level) for level in (0.2, 0.8)):
            continue
        pulls = [
            case.run(fields | values, subject.floats | {name: np.float32(level)}).gradients["values"]
            for level in (0.2, 0.8)
        ]
        low, high = (float(np.where(fields["mask"], pull, 0).sum()) for pull in pulls)
        if high > low + TINY:
            raise Failed(
                f"where values are 1 above and 1 below their returns in turn, their gradients add up to {low:.6g} with"
                f" '{name}' = 0.2 and to {high:.6g} with 0.8: descending lowers them the more"
            )
