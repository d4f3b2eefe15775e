"""Claims about sinks: what they write, that it is all of it, and what is left of it where a run goes on."""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final
from unittest import mock

import numpy as np

from dovetail.errors import ConfigError, listing
from dovetail_kit.conformance.check import Failed, Inapplicable, check
from dovetail_kit.conformance.subject import Subject

EARLIER: Final = 12
RECORDS: Final = 30
LATE: Final = 12_300_000
"""A step that six digits do not hold, and a multiple of most intervals."""
SEVERAL: Final = 30
PAIRS: Final = ((-0.5, -0.25), (-0.5, 0.5), (3e20, 6e20))
JOURNAL: Final = ("metrics.jsonl", "timings.jsonl")
"""What the engine keeps of a run, a line for each record."""

OF_SOME: Final = (
    " What writes some figures alone on purpose declares settings={'name': value} with which reward/mean, loss and"
    " eval/accuracy are among them, whatever they are."
)
"""What a sink may declare that is not to write most records, such as one that warns."""


Record = tuple[int, Mapping[str, float]]
"""A step, and its figures."""


def play(
    subject: Subject, folder: Path, records: Sequence[Record], *, kept: Sequence[Record] = (), total: int = 6
) -> None:
    """Give a sink the records of a run in a folder, as the engine does; a sink whose library is missing is not checked.

    Args:
        subject: the sink.
        folder: the run folder.
        records: what the run writes.
        kept: what it had written before the checkpoint from which it goes on.
        total: the number of steps that the config asks for.
    """
    start = max((step for step, figures in kept if not _is_warm_start(figures)), default=0)
    for name in JOURNAL:
        (folder / name).write_text("".join(_line(name, record) for record in kept))
    try:
        sink = subject.bind().open(folder, total, start)
    except ConfigError as error:
        raise Inapplicable(f"it cannot be opened here: {error}") from error
    for record in records:
        for name in JOURNAL:
            with (folder / name).open("a") as journal:
                journal.write(_line(name, record))
        sink.write(*record)
    sink.close()


def _line(name: str, record: Record) -> str:
    step, figures = record
    phase = "sft" if _is_warm_start(figures) else "rl"
    return json.dumps({"phase": phase, "step": step} | ({**figures} if name == JOURNAL[0] else {})) + "\n"


def _is_warm_start(figures: Mapping[str, float]) -> bool:
    return any(name.startswith("sft/") for name in figures)


@contextlib.contextmanager
def a_run() -> Iterator[tuple[Path, io.StringIO]]:
    """Give the folder of a run, and what is printed meanwhile."""
    with tempfile.TemporaryDirectory() as place, contextlib.redirect_stdout(io.StringIO()) as printed:
        folder = Path(place, "run")
        folder.mkdir()
        with contextlib.redirect_stderr(printed):
            yield folder, printed


def _files(folder: Path) -> list[Path]:
    """Return the files that a sink has written."""
    return [path for path in folder.rglob("*") if path.is_file() and path.name not in JOURNAL]


def left_by(subject: Subject, records: Sequence[Record], total: int = 6) -> tuple[str, dict[str, bytes]]:
    """Return what a sink has printed and written after records of a run, but for the place where it wrote."""
    with a_run() as (folder, printed):
        play(subject, folder, [(step, dict(figures)) for step, figures in records], total=total)
        place = str(folder.parent)
        files = {
            str(path.relative_to(folder)): path.read_bytes().replace(place.encode(), b"") for path in _files(folder)
        }
        return printed.getvalue().replace(place, ""), files


@check("sink", fix="Accept whatever figures a record has, and take none for granted.")
def takes_any_figures(subject: Subject) -> None:
    """It accepts records of any phase: few figures or many, NaN, none at all, and those of a resumed run.

    Curves matter most when a loss diverges; a sink that raises on NaN would end the run.
    """
    figures = {"reward/mean": 0.5, "loss": float("nan"), "kl/mean": float("inf"), "step/tokens": 1e12}
    records = [(step, figures if step % 2 else {"reward/mean": 1.0}) for step in range(1, 6)]
    last: list[Record] = [(5, {"eval/accuracy": 0.25}), (5, {})]
    with a_run() as (folder, _):
        play(subject, folder, [*records, *last], total=5)
        play(subject, folder, [*records[3:], *last], kept=records[:3], total=5)


@check("sink", fix="Copy what you are given before you change it.")
def leaves_the_record(subject: Subject) -> None:
    """It changes no record, because the next sink gets the same one.

    What is written to the others, and to `metrics.jsonl`, would depend on which sinks a config names.
    """
    figures = {"reward/mean": 0.5, "loss": 1.25, "time/step": 3.0}
    record = dict(figures)
    with a_run() as (folder, _):
        play(subject, folder, [(1, record), (2, record)], total=2)
    if record != figures:
        raise Failed(f"it is given {figures}, and leaves {record}")


@check(
    "sink", unless="elsewhere", fix=f"Flush and close in close(), and append when `start_step` is not zero.{OF_SOME}"
)
def writes(subject: Subject) -> None:
    """It writes its records to the folder or to the console, and a resumed run keeps the earlier ones.

    A sink that writes nothing is noticed when the run is over.
    """
    records = [
        (step, MappingProxyType({"reward/mean": 0.1 * step, "eval/accuracy": 0.1, "loss": 1.0 / step}))
        for step in range(1, EARLIER + 2)
    ]
    with a_run() as (folder, printed):
        play(subject, folder, records[:-1], total=EARLIER + 1)
        before = _size(folder)
        if not before and not printed.getvalue().strip():
            raise Failed(f"after {EARLIER} records there is no file, and nothing was printed")
        later = time.time() + 60  # a resumed run begins later, and names its files by the time
        with mock.patch("time.time", return_value=later):
            play(subject, folder, records[-1:], kept=records[:-1], total=EARLIER + 1)
        if (after := _size(folder)) < 0.6 * before:
            raise Failed(f"{EARLIER} records take {before} bytes, and {after} with one more of a resumed run")


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in _files(folder))


@check(
    "sink",
    unless="elsewhere",
    fix="In open(), drop what is there of steps after `start_step`: they will be written again.",
)
def repeats_nothing(subject: Subject) -> None:
    """A run that goes on from an earlier checkpoint than its last record leaves no record twice.

    After a crash the steps since the checkpoint are done again. A curve that shows them twice goes back in time.
    """
    # three times, because a sink may write a summary now and then, which repeats what it has recorded
    if all(_of_step_4(subject, stopped=5) > _of_step_4(subject, stopped=3) for _ in range(3)):
        raise Failed("after a run that had recorded 5 steps goes on from step 3, the record of step 4 is there twice")


def _of_step_4(subject: Subject, *, stopped: int) -> int:
    """Return how often the loss of step 4 is in the files of a run that ended after a step, and went on from step 3."""
    records = [(step, {"loss": 0.5 + step / 64, "reward/mean": 0.25, "eval/accuracy": 0.25}) for step in range(1, 7)]
    with a_run() as (folder, _):
        play(subject, folder, records[:stopped])
        play(subject, folder, records[3:], kept=records[:3])
        return _count(folder, b"0.5625")  # 0.5 + 4 / 64


def _count(folder: Path, figure: bytes) -> int:
    return sum(path.read_bytes().count(figure) for path in _files(folder))


@check(
    "sink",
    unless="elsewhere",
    fix="Keep what is there of the warm start, whose steps have a count of their own. It is simplest to write anew, in"
    " open(), what metrics.jsonl has: at a resume that is what stays.",
)
def keeps_the_warm_start(subject: Subject) -> None:
    """Where a run goes on, a record of the warm start (`sft/...`) before its checkpoint is there as often as before.

    The fifth step of the warm start is not after the first of RL; a run may also go on within the warm start, and
    `start_step` is 0 then.
    """
    warm = [(step, {"sft/loss": 0.5 + step / 64, "loss": 0.25, "reward/mean": 0.25}) for step in range(1, 6)]
    rest = [(step, {"loss": 0.25, "reward/mean": 0.25}) for step in range(1, 4)]
    records = [*warm, *rest]
    for done, name in ((6, "from the first step of RL"), (3, "within the warm start, from its third step")):
        counts = []
        for stopped in (done, len(records)):
            with a_run() as (folder, _):
                play(subject, folder, records[:stopped])
                if stopped == done:
                    counts.append(_count(folder, b"0.53125"))  # that of the second step, 0.5 + 2 / 64
                play(subject, folder, records[done:], kept=records[:done])
                counts.append(_count(folder, b"0.53125"))
        if min(counts[1:]) < counts[0]:
            raise Failed(f"after a run has gone on {name}, the record of the second step of the warm start is gone")


@check(
    "sink",
    unless="elsewhere",
    fix="Write each record when it comes, or gather them until close(); declare newest_only=True if that is meant."
    f"{OF_SOME}",
)
def keeps_every_record(subject: Subject) -> None:
    """What is left after six records is not what is left after the last of them alone, unless declared newest_only.

    A curve of which only the last point is left shows nothing.
    """
    if subject.declared.get("newest_only"):
        raise Inapplicable("it declares newest_only")
    records = [
        (step, {"reward/mean": step / 7, "loss": 2.0 - step / 5, "eval/accuracy": step / 9}) for step in range(1, 7)
    ]
    if left_by(subject, records) == left_by(subject, records[-1:]):
        raise Failed("it leaves the same after six records as after the last one alone")


@check(
    "sink",
    unless="elsewhere",
    fix=f"Write each figure as the float that it is, and the step that it belongs to.{OF_SOME}",
)
def tells_records_apart(subject: Subject) -> None:
    """Other figures, or the same ones of other steps, leave something else.

    Figures that are cut to whole numbers, or rows without their step, look well-formed and say nothing.
    """
    names = ("reward/mean", "loss", "eval/accuracy", "kl/mean", "entropy/mean")

    def records(shift: float, later: int, slope: float = 0.01) -> list[tuple[int, dict[str, float]]]:
        return [(step + later, dict.fromkeys(names, shift + slope * step)) for step in range(1, RECORDS + 1)]

    before = left_by(subject, records(0.0, 0))
    if left_by(subject, records(0.3, 0)) == before:
        raise Failed("it leaves the same whether figures are 0.01 to 0.3 or 0.31 to 0.6")
    if left_by(subject, records(0.123, 0, 0.0)) == left_by(subject, records(0.123, 0, 1e-4)):
        raise Failed("it leaves the same whether figures are 0.123 throughout, or rise by 0.0001 from step to step")
    if left_by(subject, records(0.0, 2)) == before:
        raise Failed(f"it leaves the same for the steps 1 to {RECORDS} and for the steps 3 to {RECORDS + 2}")


@check(
    "sink",
    unless="elsewhere",
    fix=f"Take what each record has; a zero is a figure, and a name may come later.{OF_SOME}",
)
def takes_what_each_record_has(subject: Subject) -> None:
    """A figure that is zero is told from one that is absent, and one that the first record lacked is written too.

    Most steps have no evaluation, and an accuracy of zero is what some begin with.
    """
    names = ("reward/mean", "eval/accuracy", "entropy/mean")
    before: dict[str, float] = {"loss": 0.5}

    def left(*later: dict[str, float]) -> Any:
        return left_by(subject, [(1, before), *((2 + number, before | each) for number, each in enumerate(later))])

    low, high = (left(dict.fromkeys(names, figure)) for figure in (0.25, 0.75))
    if low == high:
        raise Failed(f"it leaves the same whatever the figures of {listing(names)} are, which the first record lacks")
    if left(dict.fromkeys(names, 0.0)) == left({}):
        raise Failed(f"it leaves the same whether {listing(names)} are zero or absent")


@check(
    "sink", unless="elsewhere", fix="Pass over the figure alone that cannot be written: continue, not break or return."
)
def a_nan_hides_nothing_else(subject: Subject) -> None:
    """What stands in a record beside a figure that is NaN or infinite is written as it is without that.

    A loss is NaN in the very steps in which the other curves say why.
    """

    def left(worst: float, figure: float) -> Any:
        others = {
            name: figure + 0.01 * number for number, name in enumerate(("reward/mean", "kl/mean", "eval/accuracy"))
        }
        return left_by(subject, [(1, {"loss": 0.5}), (2, {"loss": worst, **others}), (3, {"loss": worst, **others})])

    if left(0.25, 0.75) == left(0.25, 0.5):
        raise Inapplicable("it writes the same whatever these figures are")
    for worst in (np.nan, np.inf):
        if left(worst, 0.75) == left(worst, 0.5):
            raise Failed(f"where the loss is {worst}, it leaves the same whatever the figures after it are")


@check("sink", unless="elsewhere", fix="Write names with the figures, or the columns anew where a name is new.")
def names_what_it_writes(subject: Subject) -> None:
    """A figure that the first record lacked is not written under another's name, or under none.

    Rows with more cells than the header of their table are read as other columns, or not at all.
    """
    first, later = {"loss": 0.5}, {"eval/zeugma": 0.8125, "loss": 0.25}
    printed, files = left_by(subject, [(1, first), (2, later)])
    texts = [printed, *(content.decode(errors="ignore") for content in files.values())]
    for text in texts:
        if "0.8125" in text and "zeugma" not in text and "loss" in text:
            raise Failed("the second record has eval/zeugma = 0.8125: the number is written, and the name is not")


@check("sink", unless="elsewhere", fix="Make what an open sink remembers in open(), anew for each run.")
def forgets_other_runs(subject: Subject) -> None:
    """What it leaves of a run names no figure of another run of the same process.

    The trials of a sweep share a process, and a default that is one object for all would show each trial those before.
    """
    left_by(subject, [(1, {"loss": 0.5, "eval/zeugma": 0.25})])
    printed, files = left_by(subject, [(1, {"loss": 0.5})])
    if "zeugma" in printed or any(b"zeugma" in content for content in files.values()):
        raise Failed("after a run with the figure eval/zeugma it leaves that name of one without it, too")


@check("sink", unless="elsewhere", fix="Write whole numbers in full: repr(value), or a format with 17 digits.")
def counts_in_full(subject: Subject) -> None:
    """In its files a count of eight digits is not that of the next number.

    Six digits are enough for a loss. Of the tokens so far they are not: `%g` writes 12345678 as 1.23457e+07.
    """

    def files(tokens: float) -> dict[str, bytes]:
        return left_by(subject, [(step, {"loss": 0.5, "tokens/total": tokens + step}) for step in range(1, 4)])[1]

    count = 12345677.0
    if files(count) != files(3 * count) and files(count) == files(count + 1):
        raise Failed("it writes the same whether tokens/total ends with 12345680 or with 12345681")


@check("sink", unless="elsewhere", fix="Write digits that count: repr(value), or a format with `g`; do not round().")
def small_figures_in_full(subject: Subject) -> None:
    """In its files a learning rate of 1.25e-07 is not one of 2.5e-07.

    Rounded to six decimals both are zero, and so is the loss of what has all but converged.
    """

    def files(lr: float) -> dict[str, bytes]:
        return left_by(subject, [(step, {"loss": 0.5, "lr": lr}) for step in range(1, 4)])[1]

    if files(0.125) != files(0.25) and files(1.25e-7) == files(2.5e-7):
        raise Failed("it writes the same whether lr is 1.25e-07 or 2.5e-07")


def _of_figure(subject: Subject, figure: float) -> Any:
    return left_by(subject, [(step, {"loss": figure, "reward/mean": 0.5}) for step in range(1, 4)])


@check("sink", unless="elsewhere", fix="Write every figure as it is: repr(value), whatever its sign and size.")
def figures_of_either_sign(subject: Subject) -> None:
    """A loss of -0.5 is told from one of -0.25, and from one of 0.5; a figure of 3e20 from one of 6e20.

    The loss of a policy is negative half of the time, and where it diverges its size says how.
    """
    if _of_figure(subject, 0.5) == _of_figure(subject, 0.25):
        raise Inapplicable("it leaves the same for a loss of 0.5 and one of 0.25")
    for one, other in PAIRS:
        if _of_figure(subject, one) == _of_figure(subject, other):
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
