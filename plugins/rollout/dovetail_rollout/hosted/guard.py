"""Runs a command that must not outlive the process that wants it: `python -I guard.py COMMAND...`.

The command and all its descendants are ended when this program's standard input ends or its parent is gone, however
that came about: a pipe closes with the process that holds it, also after SIGKILL. Standard library only, so that
it starts in a few milliseconds; a script, so that it needs no installed package.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time

GRACE_SECONDS = 10.0
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def _prctl(option: int, value: int) -> None:
    """Ask Linux; other systems have no such thing."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _follow(guard: int) -> None:
    """Have the command hear of it if the guard itself is killed, or end now if it is gone already."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != guard:
        os._exit(1)


def _children() -> list[int]:
    """Return this process's children; an orphaned descendant is one of them."""
    with contextlib.suppress(OSError), open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as listed:
        return [int(pid) for pid in listed.read().split()]
    return []


def _end(group: int, number: int, seconds: float) -> bool:
    """Signal the command's process group, and each child as it becomes ours; tell whether none is left in time."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
    told: set[int] = set()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for pid in set(_children()) - told:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
            told.add(pid)
        try:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(0.02)
        except ChildProcessError:
            return True
    return False


def _wanted(parent: int) -> bool:
    """Wait half a second for the pipe to end, and look after the parent."""
    ready, _, _ = select.select([0], [], [], 0.5)
    return os.getppid() == parent and not (ready and not os.read(0, 1))


def main() -> int:
    """Run the command; return its exit status, 128 more than the signal that ended it, as shells do."""
    guard, parent = os.getpid(), os.getppid()
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    child = subprocess.Popen(
        sys.argv[1:],
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=lambda: _follow(guard),  # noqa: PLW1509 - there are no threads here
    )
    while child.poll() is None and _wanted(parent):
        pass
    if not _end(child.pid, signal.SIGTERM, GRACE_SECONDS):
        _end(child.pid, signal.SIGKILL, GRACE_SECONDS)
    status = child.returncode or 0
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())
