"""A run that a command could mean, and does not resume because it is given in another folder."""

from __future__ import annotations

import os
import warnings
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dovetail.config import Config, run_id
from dovetail.errors import DovetailWarning, RunError
from dovetail.run.files import read_record
from dovetail.shipped import find


@contextmanager
def warned(options: Namespace, config: Config, folder: Path) -> Iterator[None]:
    """Warn before a run begins whose config names its folder by a relative path, if it has begun beside that file.

    A relative path is meant from where a command is given, so the same command elsewhere begins the run once more.
    """
    place = config.run.folder or ""
    beside = find(options.config).absolute().parent / place
    begins = place and Path(place) == folder and not (folder / "run.json").exists()
    if begins and _run_in(beside) == run_id(config):
        warnings.warn(
            f"run.folder = '{place}' is meant from '{os.getcwd()}', where a new run begins: the one that has begun in"
            f" '{beside}' is not resumed; to do that, stop this one and add --folder {beside}",
            DovetailWarning,
            stacklevel=2,
        )
    yield


def _run_in(folder: Path) -> str:
    try:
        return str(read_record(folder / "run.json", run_id=str)["run_id"])
    except RunError:  # no run, or not one of ours
        return ""
