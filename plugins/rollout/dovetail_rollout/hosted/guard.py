"""Runs a command that must not outlive its parent: `python -I guard.py STATUS COMMAND...`.

The command and all its descendants are ended when this program's standard input closes or its parent is gone. A pipe
closes with the process that holds it, even after SIGKILL. `PR_SET_PDEATHSIG` in the parent would not do: it follows the
thread that forked, and running a function before `exec` is unsafe with JAX's threads. This program also adopts what the
command's processes leave behind. How the command ended is written to the file STATUS at once, as `subprocess` counts
it: what the command leaves behind may take a while to end. It uses only the standard library, so that it starts in a
few milliseconds, and is a script, so that it needs no installed package.
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
    """Call prctl on Linux; other systems do not have it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _follow(guard: int) -> None:
    """Have the command signalled if the guard itself is killed, or end now if that has happened already."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != guard:
        os._exit(1)


def _children() -> list[int]:
    """Return this process's children, which include orphaned descendants."""
    with contextlib.suppress(OSError), open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as listed:
        return [int(pid) for pid in listed.read().split()]
    return []


def _end(group: int, number: int, seconds: float) -> bool:
    """Signal the command's process group and each child as it becomes ours; tell whether all ended in time."""
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
    """Wait up to half a second for the pipe to close; tell whether the command is still wanted."""
    ready, _, _ = select.select([0], [], [], 0.5)
    return os.getppid() == parent and not (ready and not os.read(0, 1))


def _tell(file: str, status: int) -> None:
    """Write the command's status so that nobody reads half of it."""
    with open(f"{file}.new", "w", encoding="ascii") as told:
        told.write(str(status))
    os.replace(f"{file}.new", file)


def main() -> int:
    """Run the command and return its exit status, or 128 plus the signal that ended it, as shells do."""
    guard, parent = os.getpid(), os.getppid()
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    child = subprocess.Popen(
        sys.argv[2:],
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=lambda: _follow(guard),  # noqa: PLW1509 - there are no threads here
    )
    while child.poll() is None and _wanted(parent):  # asked twice a second
        pass
    if child.returncode is not None:
        _tell(sys.argv[1], child.returncode)
    if not _end(child.pid, signal.SIGTERM, GRACE_SECONDS):
        _end(child.pid, signal.SIGKILL, GRACE_SECONDS)
    status = child.returncode or 0
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())
