"""Claims about what sinks keep: figures of either sign and any size, late steps, and two records of one step."""

from __future__ import annotations

from typing import Any, Final

from dovetail_kit.conformance.check import Failed, Inapplicable, check
from dovetail_kit.conformance.subject import Subject
from dovetail_kit.conformance.suites.habits import left_by

LATE: Final = 12_300_000
"""A step that six digits do not hold, and a multiple of most intervals."""
SEVERAL: Final = 30
PAIRS: Final = ((-0.5, -0.25), (-0.5, 0.5), (3e20, 6e20))


def _files(subject: Subject, figure: float) -> Any:
    return left_by(subject, [(step, {"loss": figure, "reward/mean": 0.5}) for step in range(1, 4)])


@check("sink", unless="elsewhere", fix="Write every figure as it is: repr(value), whatever its sign and size.")
def figures_of_either_sign(subject: Subject) -> None:
    """A loss of -0.5 is told from one of -0.25, and from one of 0.5; a figure of 3e20 from one of 6e20.

    The loss of a policy is negative half of the time, and where it diverges its size says how.
    """
    if _files(subject, 0.5) == _files(subject, 0.25):
        raise Inapplicable("it leaves the same for a loss of 0.5 and one of 0.25")
    for one, other in PAIRS:
        if _files(subject, one) == _files(subject, other):
            raise Failed(f"it leaves the same whether the loss is {one:g} or {other:g}")


@check("sink", unless="elsewhere", fix="Write the step as the whole number that it is, in full.")
def late_steps_in_full(subject: Subject) -> None:
    """Of a long run, too, its files are others for other steps: for 12,300,001 to 12,300,030, and for two more each.

    `%g` writes six digits, and bfloat16 tells 256 steps apart: a curve that is drawn from such steps goes up in stairs.
    """

    def left(later: int) -> Any:
        records = [(step + later, {"loss": 0.01 * step, "reward/mean": 0.5}) for step in range(1, SEVERAL + 1)]
        return left_by(subject, records, total=2 * LATE)[1]

    if left(0) != left(2) and left(LATE) == left(LATE + 2):
        raise Failed(f"it writes the same for the steps from {LATE + 1:,} and for those from {LATE + 3:,} on")


@check("sink", unless="elsewhere", fix="Write each record by itself; a step may have one, and an evaluation after it.")
def keeps_both_records_of_a_step(subject: Subject) -> None:
    """What it leaves of a step's record is there also where an evaluation of the same step follows.

    Kept by the number of the step, the evaluation takes the place of the step's own figures.
    """

    def left(loss: float, *after: tuple[int, dict[str, float]]) -> Any:
        records = [(1, {"loss": 0.75}), (2, {"loss": loss, "reward/mean": loss}), *after]
        return left_by(subject, [*records, (3, {"loss": 0.75})])

    if left(0.5) == left(0.25):
        raise Inapplicable("it leaves the same whatever the figures of a step are")
    evaluated = (2, {"eval/accuracy": 0.125})
    if left(0.5, evaluated) == left(0.25, evaluated):
        raise Failed("where an evaluation follows under the number of a step, it leaves nothing of the step's figures")
