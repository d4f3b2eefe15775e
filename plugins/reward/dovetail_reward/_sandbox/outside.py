"""Start confined processes, one for each run, and read their output."""

from __future__ import annotations

import functools
import json
import math
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal

import attrs

from dovetail.errors import RewardError
from dovetail_reward._sandbox.inside import BEGUN, CODE, JOB, NOT_CONFINED, PACKAGES
from dovetail_reward._sandbox.packages import places

FULL: Final = ("landlock", "seccomp")
"""All protections."""
_OPEN: Final = {
    (
        "seccomp",
    ): "can read every file that you can read, the memory and environment of your other processes among them,"
    " as this kernel has no Landlock (Linux 5.13)",
    ("landlock",): "can start processes and use the network, as this kernel has no seccomp filters",
    (): "can do all that you can do, under limits of time, memory and file size; the rest needs Linux on x86-64 or ARM",
}

THREADS: Final = 256
"""How many a run may have. No limit of the kernel binds those of root, each takes memory of the kernel's, and there are
only so many numbers for processes and threads on a machine."""

ENVIRONMENT: Final = {"PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""A fixed seed for hashes, and one thread for the products of arrays: others run beside it."""

_INPUT = "input"
_CHUNK = 1 << 16
_LOOK = 0.05
"""Seconds between looks at how many threads there are."""
_PROGRAM: Final = (
    f"import sys; sys.path.append({str(Path(__file__).parents[1])!r});"
    " from _sandbox.inside import main; sys.path.pop(); main(sys.argv[1])"
)


class SandboxError(RewardError):
    """A process could not be confined as required; the code has not run."""


@attrs.frozen(kw_only=True)
class Ran:
    """The result of a run: how it ended, and its output up to the limit.

    `failed`: with an error, or by exceeding its limits of memory, files and threads; `late`: by exceeding the time
    limit; `loud`: by printing too much.
    """

    how: Literal["done", "failed", "late", "loud"]
    output: str = ""


@functools.cache
def protections() -> tuple[str, ...]:
    """Return the protections of `FULL` that this machine supports; tested only once."""
    ran = run("", probe=True, require=(), time_limit=60.0, output_limit=1000)
    if ran.how != "done":
        raise SandboxError(f"a confined process does not start: {ran.how}")
    return tuple(json.loads(ran.output))


def what_is_open() -> str | None:
    """Say in one line what model-written code may do on this machine beyond what it should; None if that is nothing."""
    held = protections()
    return None if held == FULL else f"model-written code {_OPEN[held]}"


def run(
    source: str,
    *,
    stdin: str = "",
    call: dict[str, Any] | None = None,
    cells: Sequence[str] | None = None,
    time_limit: float,
    output_limit: int,
    memory: int = 512 << 20,
    require: Sequence[str] = FULL,
    packages: tuple[str, ...] = (),
    probe: bool = False,
) -> Ran:
    """Run a program with this input, or call one of its functions and return the result as JSON.

    Args:
        source: the Python source.
        stdin: the standard input.
        call: `function`, a name, and `arguments`, which must be JSON-compatible.
        cells: programs that are run before it in the same process, like cells of a notebook. Only the output of
            `source` is returned, including the value of an expression at its end and the traceback of an exception.
        time_limit: in seconds; the process is then ended.
        output_limit: the number of bytes that it may print.
        memory: the address space that it may use, in bytes.
        require: the protections of `FULL` that must be in effect.
        packages: installed packages that it may import, and so read, with those that they need.
        probe: run nothing, and print the protections that are in effect.

    Raises:
        SandboxError: if a required protection is not in effect.
        ConfigError: if a package is not installed.

    >>> run("print(int(input()) + 1)", stdin="41", time_limit=30, output_limit=10, require=protections()).output
    '42\\n'
    """
    with tempfile.TemporaryDirectory(prefix="dovetail-") as name:
        folder = Path(name).resolve()
        seconds = math.ceil(time_limit) + 1
        job = {"memory": memory, "seconds": seconds, "require": list(require), "call": call, "probe": probe}
        job |= {"cells": None if cells is None else list(cells), "parent": os.getpid()}
        job |= {"packages": [str(path) for path in _linked(folder / PACKAGES, packages)]}
        (folder / JOB).write_text(json.dumps(job))
        (folder / CODE).write_text(source, encoding="utf-8", errors="replace")
        (folder / _INPUT).write_text(stdin, encoding="utf-8", errors="replace")
        return _watched(folder, time_limit, output_limit)


def _linked(folder: Path, packages: tuple[str, ...]) -> list[Path]:
    """Make a folder with links to the files of packages alone, and return where these are; none without packages."""
    found = places(packages)
    if found:
        folder.mkdir()
    for name, path in found.items():
        (folder / name).symlink_to(path)
    return list(found.values())


def _watched(folder: Path, time_limit: float, output_limit: int) -> Ran:
    # No site packages, no bytecode written, and an environment that tells nothing.
    command = [sys.executable, "-s", "-S", "-P", "-B", "-X", "utf8", "-c", _PROGRAM, str(folder)]
    with (folder / _INPUT).open("rb") as stdin:
        process = subprocess.Popen(
            command,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env=ENVIRONMENT,
            start_new_session=True,
        )
    try:
        return _read(process, time.monotonic() + time_limit, output_limit)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        assert process.stdout is not None
        process.stdout.close()
        process.wait()


def _read(process: subprocess.Popen[bytes], deadline: float, output_limit: int) -> Ran:
    assert process.stdout is not None
    output, look = bytearray(), time.monotonic() + _LOOK
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            readable = selector.select(max(min(deadline, look) - time.monotonic(), 0))
            if time.monotonic() >= look:
                look = time.monotonic() + _LOOK
                if _is_crowded(process):
                    return Ran(how="failed", output=_text(output))
            if not readable:
                if time.monotonic() >= deadline:
                    return Ran(how="late", output=_text(output))
                continue
            chunk = os.read(process.stdout.fileno(), _CHUNK)
            output += chunk
            if len(output) > len(BEGUN) + output_limit:
                return Ran(how="loud", output=_text(output[: len(BEGUN) + output_limit]))
            if not chunk:
                break
    return _ended(process, deadline, bytes(output))


def _is_crowded(process: subprocess.Popen[bytes]) -> bool:
    """Tell whether a process has more threads than it may; false where nobody can say."""
    try:
        return os.stat(f"/proc/{process.pid}/task").st_nlink - 2 > THREADS
    except OSError:
        return False


def _ended(process: subprocess.Popen[bytes], deadline: float, output: bytes) -> Ran:
    status = None
    while status is None:
        try:
            status = process.wait(max(min(deadline - time.monotonic(), _LOOK), 0))
        except subprocess.TimeoutExpired:
            if _is_crowded(process):
                return Ran(how="failed", output=_text(output))
            if time.monotonic() >= deadline:
                return Ran(how="late", output=_text(output))
    if status == NOT_CONFINED and not output:
        raise SandboxError("a process could not be confined as it had to be; its code has not run")
    if status == -signal.SIGXCPU:
        return Ran(how="late", output=_text(output))
    return Ran(how="done" if status == 0 else "failed", output=_text(output))


def _text(output: bytes | bytearray) -> str:
    return bytes(output).removeprefix(BEGUN).decode("utf-8", errors="replace")
