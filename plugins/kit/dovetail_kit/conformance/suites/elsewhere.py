"""Claims about tasks, rewards and sinks beyond a single call: in another process, and in what they leave."""

from __future__ import annotations

import contextlib
import io
import json
import re
import tempfile
import time
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final
from unittest import mock

from dovetail.errors import DovetailError
from dovetail_kit.conformance.again import ERROR, told
from dovetail_kit.conformance.check import Failed, Inapplicable, check
from dovetail_kit.conformance.clock import TooLong, limited
from dovetail_kit.conformance.subject import Subject
from dovetail_kit.conformance.suites.data import OF_SOME, first_of, opened, task_of
from dovetail_kit.conformance.suites.devices import ASKED_AGAIN, answers_of, name_of
from dovetail_kit.conformance.suites.texts import is_pure

EARLIER = 12
JOURNAL = "metrics.jsonl"
LONG: Final = 10_000
SIZE: Final = re.compile(r"(^|_)(size|count|limit|examples|records|rows)$")
PATIENCE: Final = 10
"""Seconds of processor time for many examples."""
DISTINCT = 0.95
"""The share of different examples among the first ones; small made-up tasks draw some twice."""


@check(
    *ASKED_AGAIN,
    when=is_pure,
    slow=True,
    fix="Sort what comes from a set or a folder, and use hashlib where a text is to be hashed: hash() is another every"
    " time.",
)
def same_in_another_process(subject: Subject) -> None:
    """In another process it gives the same results, in the same order.

    Otherwise a resumed run would continue with other examples, and use some twice and others never.
    """
    if subject.component.kind == "task":
        task_of(subject)  # data that cannot be read here is not asked for elsewhere
    if "url" in subject.component.params or "processes" in subject.component.params:
        raise Inapplicable("it asks another program")
    expected, found = (
        told(subject),
        answers_of("again", subject).get(name_of(subject), {ERROR: "it is not at the top level"}),
    )
    if isinstance(found, dict):
        raise Inapplicable(f"it cannot be asked in another process: {found[ERROR]}")
    if len(found) != len(expected):
        raise Failed(f"in another process it gives {len(found)} results, and here {len(expected)}")
    for ours, theirs in zip(expected, found, strict=True):
        if ours != theirs:
            raise Failed(f"in another process it gives {theirs[:160]}, and here {ours[:160]}")


@check("task", unless="repeats", fix="Leave out what is there already, or declare repeats=True.")
def distinct(subject: Subject) -> None:
    """Most examples of a split are different.

    Duplicates count twice in every mean, and one of two equal examples may be trained on while the other is held out.
    """
    task = task_of(subject)
    for split in ("train", "eval"):
        examples = [repr(sorted(example.items(), key=str)) for example in first_of(task.examples(split))]
        if len(set(examples)) < DISTINCT * len(examples):
            raise Failed(f"of the first {len(examples)} {split} examples {len(set(examples))} are different")


def comes_twice(subject: Subject) -> bool:
    """Tell whether an example of a task comes twice in ten thousand, also with larger splits than its own; true if that
    takes too long to be known.
    """
    larger = {name: LONG for name, size in subject.params.items() if SIZE.search(name) and type(size) is int}
    try:
        with limited(PATIENCE):
            return any(_has_twice(subject.bind(**sizes)) for sizes in ({}, larger))
    except (DovetailError, Inapplicable, ValueError):
        return False  # it has no more than it has by default
    except TooLong:
        return True


def _has_twice(task: Any) -> bool:
    """Tell whether an example of a split comes twice."""
    for split in ("train", "eval"):
        examples = [repr(sorted(example.items(), key=str)) for example in first_of(task.examples(split), LONG)]
        if len({*examples}) < len(examples):
            return True
    return False


@check("sink", fix="Copy what you are given before you change it.")
def leaves_the_record(subject: Subject) -> None:
    """It changes no record, because the next sink gets the same one.

    What is written to the others, and to `metrics.jsonl`, would depend on which sinks a config names.
    """
    figures = {"reward/mean": 0.5, "loss": 1.25, "time/step": 3.0}
    record = dict(figures)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        sink = opened(subject, Path(folder), 2, 0)
        for step in (1, 2):
            sink.write(step, record)
        sink.close()
    if record != figures:
        raise Failed(f"it is given {figures}, and leaves {record}")


@check(
    "sink", unless="elsewhere", fix=f"Flush and close in close(), and append when `start_step` is not zero.{OF_SOME}"
)
def writes(subject: Subject) -> None:
    """It writes its records to the folder or to the console, and a resumed run keeps the earlier ones.

    A sink that writes nothing is noticed when the run is over.
    """
    with tempfile.TemporaryDirectory() as place, contextlib.redirect_stdout(io.StringIO()) as printed:
        folder = Path(place)
        with contextlib.redirect_stderr(printed):
            # what the engine itself keeps, which a sink may read
            lines = [json.dumps({"phase": "rl", "step": step, "reward/mean": 0.5}) for step in range(1, EARLIER + 1)]
            (folder / JOURNAL).write_text("".join(f"{line}\n" for line in lines))
            _write(subject, folder, 0, EARLIER)
            before = _size(folder)
            if not before and not printed.getvalue().strip():
                raise Failed(f"after {EARLIER} records there is no file, and nothing was printed")
            later = time.time() + 60  # a resumed run begins later, and names its files by the time
            with mock.patch("time.time", return_value=later):
                _write(subject, folder, EARLIER, EARLIER + 1)
        if _size(folder) < 0.6 * before:
            raise Failed(f"{EARLIER} records take {before} bytes, and {_size(folder)} with one more of a resumed run")


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
    with tempfile.TemporaryDirectory() as place, contextlib.redirect_stdout(io.StringIO()) as printed:
        folder = Path(place)
        (folder / JOURNAL).write_text("")
        with contextlib.redirect_stderr(printed):
            for start, last in ((0, stopped), (3, 6)):
                sink = opened(subject, folder, 6, start)
                for step in range(start + 1, last + 1):
                    sink.write(step, {"loss": 0.5 + step / 64, "reward/mean": 0.25, "eval/accuracy": 0.25})
                sink.close()
        files = [path for path in folder.rglob("*") if path.is_file() and path.name != JOURNAL]
        return sum(path.read_bytes().count(b"0.5625") for path in files)  # 0.5 + 4 / 64


def _write(subject: Subject, folder: Path, start: int, last: int) -> None:
    sink = opened(subject, folder, EARLIER + 1, start)
    for step in range(start + 1, last + 1):
        sink.write(step, MappingProxyType({"reward/mean": 0.1 * step, "eval/accuracy": 0.1, "loss": 1.0 / step}))
    sink.close()


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file() and file.name != JOURNAL)
