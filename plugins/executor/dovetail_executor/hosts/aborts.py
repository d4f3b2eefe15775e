"""Rewrites JAX's message to one line when `jax.distributed` ends a process because another one is gone.

JAX aborts the process from another thread. A handler makes that end with status 1, like any other failure; nothing
else of Python runs after it. Therefore the process's stderr goes through a small separate process (`python aborts.py`),
which forwards everything and rewrites that message.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

ABORTED: Final = "Terminating process because the JAX distributed service detected fatal errors"
NOISE: Final = re.compile(r"[EW]\d{4} [\d:.]+ +\d+ (coordination_|preemption_)|\[Gloo\] Rank")
CONTINUED: Final = re.compile(r"\d+$|The tasks? ha|Additional GRPC|:UNKNOWN|RPC: |$")
"""Lines that continue the previous line if that is noise."""
KNOWN: Final = "\0dovetail "
"""The prefix of a line in which the process describes the other processes; it is not forwarded."""


def translate_from_now_on() -> None:
    """Redirect this process's stderr through the rewriting process."""
    sys.stderr.flush()
    beside = subprocess.Popen([sys.executable, "-I", "-S", __file__], stdin=subprocess.PIPE, start_new_session=True)
    assert beside.stdin is not None, "it was asked for"
    os.dup2(beside.stdin.fileno(), 2)
    beside.stdin.close()
    # Python's own handlers do not run in an abort
    ctypes.CDLL(None).signal(signal.SIGABRT, _FAIL)


def _fail(_: int) -> None:
    """End the process as any other failure does, instead of as a crash."""
    os._exit(1)


_FAIL: Final = ctypes.CFUNCTYPE(None, ctypes.c_int)(_fail)
"""Kept here, since it must live as long as the process."""


def know(**what: object) -> None:
    """Pass on the data for messages: `index`, `count`, `coordinator`, and `hosts`, a name for each process."""
    os.write(2, f"{KNOWN}{json.dumps(what)}\n".encode())


def rewritten(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines of a stderr, with JAX's final message rewritten to one line."""
    known: dict[str, object] = {}
    left, noise = iter(lines), False
    for line in left:
        noise = bool(NOISE.match(line) or (noise and CONTINUED.match(line)))
        if line.startswith(KNOWN):
            known |= json.loads(line.removeprefix(KNOWN))
        elif ABORTED in line:
            yield f"error: {said(line + ''.join(left), known)}\n"
        elif not noise:
            yield line


def said(message: str, known: Mapping[str, object]) -> str:
    """Return an explanation of JAX's message.

    >>> print(said("... (stopped sending heartbeats):\\n1\\nThe tasks have crashed", {"hosts": ["alpha", "beta"]}))
    process 1 on beta has died: it has not been heard of for too long (--deadline). This process ends with it; its log \
may say why. Start the same command again in all processes to go on from the newest checkpoint
    """
    again = "Start the same command again in all processes to go on from the newest checkpoint"
    hosts = [*known["hosts"]] if isinstance(known.get("hosts"), list) else []  # pyright: ignore[reportGeneralTypeIssues]
    coordinator = known.get("coordinator", "the coordinator")
    if "RegisterTask" in message:
        if known.get("index") == 0:
            return (
                f"not all of the {known.get('count')} processes have come to {coordinator} in time (--wait): see that"
                " each was started, with the same --processes and a --process of its own"
            )
        return f"process 0 at {coordinator} does not take this process in: see its log"
    if gone := re.search(r"stopped sending heartbeats\):\s*((?:\S*\d+\s+)+)The task", message):
        names = [int(number) for number in re.findall(r"(\d+)\s", gone[1])]
        named = [f"{number} on {hosts[number]}" if number < len(hosts) else str(number) for number in names]
        which = f"process {named[0]} has" if len(named) == 1 else f"processes {', '.join(named)} have"
        what = "it has" if len(named) == 1 else "they have"
        return (
            f"{which} died: {what} not been heard of for too long (--deadline). This process ends with it; its log may"
            f" say why. {again}"
        )
    first = f"process 0 on {hosts[0]}" if hosts else "process 0"
    if "Failed to send RPC" in message or "leader" in message:
        return f"{first}, the coordinator at {coordinator}, has died or cannot be reached; its log may say why. {again}"
    return f"jax.distributed has ended this process: {' '.join(message.split())[:600]}"


if __name__ == "__main__":
    sys.stdin.reconfigure(errors="replace")  # pyright: ignore[reportAttributeAccessIssue]
    for rewritten_line in rewritten(sys.stdin):
        sys.stderr.write(rewritten_line)
        sys.stderr.flush()
