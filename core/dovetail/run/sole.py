"""Sees that a run folder has one job at a time, also on a disk that hosts share, whose locks may end at each host.

`flock` ends with its process, however that ends, but some disks (FUSE, Lustre with `localflock`) keep it from the other
hosts without saying so. So the file has the name of its host, too, and a thread touches it while the job lives.
"""

from __future__ import annotations

import json
import os
import platform
import threading
import time
import warnings
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import attrs

from dovetail.errors import DovetailWarning, RunError
from dovetail.run.files import hold

BEAT_SECONDS = 5.0
SILENT_BEATS = 3
LOOKS_PER_BEAT = 5


@attrs.frozen
class Sole:
    """A folder's lock, which is held until it is closed, or this process ends."""

    file: IO[bytes]
    ended: threading.Event
    beats: threading.Thread

    def close(self) -> None:
        """Leave the folder to others, of any host."""
        self.ended.set()
        self.beats.join(BEAT_SECONDS)
        with suppress(OSError):
            self.file.truncate(0)
        self.file.close()


def hold_alone(path: Path, what: str) -> Sole:
    """Lock a file, for this process alone on all hosts.

    A job that was killed on another host leaves that host's name: the file is then watched for some seconds.

    Args:
        path: the file, which is created if necessary.
        what: the name in messages of the thing that it locks.

    Raises:
        RunError: if another process holds it, here or on another host.
    """
    file = hold(path, what)
    try:
        _see_that_silent(path, what)
        file.truncate(0)
        file.write(json.dumps({"host": platform.node(), "process": os.getpid()}).encode())
        file.flush()
    except BaseException:
        file.close()
        raise
    ended = threading.Event()
    beats = threading.Thread(target=_beat, args=(path, ended), name="beats", daemon=True)
    beats.start()
    return Sole(file, ended, beats)


def _beat(path: Path, ended: threading.Event) -> None:
    while not ended.wait(BEAT_SECONDS):
        with suppress(OSError):  # a disk that is away for a while ends no run
            os.utime(path)


def _see_that_silent(path: Path, what: str) -> None:
    """Refuse a file that a job on another host touches."""
    who, touched = _read(path)
    if not who or who.get("host") == platform.node():  # here flock is to be trusted
        return
    host, silent = who.get("host"), BEAT_SECONDS * SILENT_BEATS
    warnings.warn(
        f"{what} was last used on host {host}: waiting {silent:g} s for a sign of that job", DovetailWarning, 3
    )
    for _ in range(LOOKS_PER_BEAT * SILENT_BEATS):  # counted: a process that stands still meanwhile has not looked
        time.sleep(BEAT_SECONDS / LOOKS_PER_BEAT)
        if _read(path) != (who, touched):
            raise RunError(f"{what} is in use on host {host} (process id {who.get('process')})")


def _read(path: Path) -> tuple[dict[str, Any], int]:
    """Return who has the file, and when it was touched; it is opened, since NFS looks for changes then only."""
    with path.open("rb") as file:
        text, touched = file.read(1000), os.fstat(file.fileno()).st_mtime_ns
    try:
        who = json.loads(text)
    except ValueError:
        who = {}
    return who if isinstance(who, dict) else {}, touched
