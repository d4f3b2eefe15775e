"""Joins several processes into one run: they connect, check that they are about to do the same, and end together."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import platform
import resource
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from dovetail.devices.processes import client, wait_for
from dovetail.errors import DovetailError, DovetailWarning, RunError, printable
from dovetail_executor.hosts import aborts

FAILED, HEARD, HELLO, TIME = "dovetail/failed", "dovetail/heard", "dovetail/hello", "dovetail/time"
AUTO: Final = "auto"
SHOWN: Final = 6
LEAVING_SECONDS: Final = 5.0
CLOCKS_SECONDS: Final = 10.0
"""By how much the clocks of two hosts may differ without a word."""
LOST: Final = ("Gloo ", "NCCL", "UNAVAILABLE:", "CoordinationService")
"""Phrases in the errors of a process whose peer has ended; a little later JAX reports which one it was."""


@attrs.frozen(kw_only=True)
class Meeting:
    """The address of the coordinator, the number of processes, and the index of this one.

    Attributes:
        coordinator: `HOST:PORT` of process 0, or `auto` for the address that `jax.distributed` finds in the
            environment.
        processes: the number of processes; None with `auto`.
        process: the index of this process; None with `auto`.
        wait: seconds to wait for the other processes at the beginning.
        deadline: seconds without a heartbeat after which a process counts as dead.
    """

    coordinator: str
    processes: int | None
    process: int | None
    wait: int = 300
    deadline: int = 60

    def __attrs_post_init__(self) -> None:
        given = (self.processes, self.process)
        if self.coordinator == AUTO and given == (None, None):
            return
        host, _, port = self.coordinator.rpartition(":")
        if self.coordinator != AUTO and not (host and port.isdigit() and 0 < int(port) < 1 << 16):
            raise RunError(
                f"--coordinator '{self.coordinator}' is not HOST:PORT, such as 10.0.0.1:1234, and not 'auto'"
            )
        if self.processes is None or self.process is None or self.coordinator == AUTO:
            raise RunError(
                "say all of --coordinator HOST:PORT --processes N --process I, or --coordinator auto alone, which takes"
                " them from the environment of Slurm, Kubernetes, Open MPI or a TPU pod"
            )
        if not 0 <= self.process < self.processes:
            raise RunError(
                f"--process {self.process} of --processes {self.processes} does not exist: they are counted from 0"
            )


@contextlib.contextmanager
def joined(meeting: Meeting, identity: Callable[[], Mapping[str, Any]]) -> Iterator[None]:
    """Return a context in which this process is one of those of a run; it does nothing for a process that is alone.

    Args:
        meeting: how the processes connect.
        identity: returns the properties that must be the same in all of them, by name.

    Raises:
        RunError: if the other processes do not come, cannot be reached, or are about to do something else.
    """
    if meeting.processes == 1:
        yield
        return
    aborts.translate_from_now_on()
    _initialize(meeting)
    ended, turn = threading.Event(), threading.Lock()
    watcher = threading.Thread(target=_watch, args=(ended, turn), name="others", daemon=True)
    watcher.start()
    try:
        hosts = _compare(identity())
        _compare_clocks(hosts)
        yield
    except BaseException as error:
        _leave_because_of(error, meeting.deadline, turn)
        raise
    ended.set()
    watcher.join()
    import jax

    jax.distributed.shutdown()


def _initialize(meeting: Meeting) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))  # aborts are not defects
    where: dict[str, Any] = {}
    wait = meeting.wait
    if meeting.coordinator != AUTO:
        aborts.know(index=meeting.process, count=meeting.processes, coordinator=meeting.coordinator)
        began = time.monotonic()
        (_see_that_free if meeting.process == 0 else _reach)(meeting)
        wait = max(1, wait - int(time.monotonic() - began))
        where = {
            "coordinator_address": meeting.coordinator,
            "num_processes": meeting.processes,
            "process_id": meeting.process,
            "cluster_detection_method": "deactivate",
        }
    import jax

    # with this service, JAX would treat SIGTERM as a notice for others to handle
    jax.config.update("jax_enable_preemption_service", False)
    try:
        jax.distributed.initialize(
            **where,
            initialization_timeout=wait,
            heartbeat_timeout_seconds=meeting.deadline,
            shutdown_timeout_seconds=max(meeting.deadline, 60),
        )
    except (ValueError, RuntimeError) as error:
        found = " ".join(str(error).split())
        if meeting.coordinator == AUTO:
            raise RunError(
                f"--coordinator auto: jax.distributed finds no cluster in the environment ({found}); say --coordinator"
                " HOST:PORT --processes N --process I"
            ) from error
        raise RunError(f"process {meeting.process} cannot join {meeting.coordinator}: {found}") from error


def _see_that_free(meeting: Meeting) -> None:
    """Refuse a port that another program uses, which JAX would report only in its log."""
    port = int(meeting.coordinator.rpartition(":")[2])
    with socket.socket(socket.AF_INET6 if socket.has_ipv6 else socket.AF_INET) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("", port))
        except OSError as error:
            raise RunError(
                f"port {port} cannot be used on {platform.node()} ({error.strerror}): another program has it, perhaps"
                " another run; take another port in --coordinator, in all processes"
            ) from error


def _reach(meeting: Meeting) -> None:
    """Wait until the coordinator's address accepts connections, because JAX would abort without a clear message."""
    host, _, port = meeting.coordinator.rpartition(":")
    deadline = time.monotonic() + meeting.wait
    while True:
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
            return
        except OSError as error:
            if time.monotonic() > deadline:
                raise RunError(
                    f"the coordinator {meeting.coordinator} has not answered process {meeting.process} on"
                    f" {platform.node()} for {meeting.wait} s ({error.strerror or error}): see that process 0 runs"
                    " there, and that the port is open between the hosts"
                ) from error
            time.sleep(0.2)


def _compare(identity: Mapping[str, Any]) -> list[str]:
    """Refuse to begin unless all processes are about to do the same; return their hosts.

    Raises:
        RunError: naming the first process that differs from process 0, and the difference.
    """
    import jax

    index, mine = jax.process_index(), {"host": f"{platform.node()} (process id {os.getpid()})", **identity}
    client().key_value_set(f"{HELLO}/{index}", json.dumps(mine))
    all_of_them = [json.loads(wait_for(f"{HELLO}/{number}")) for number in range(jax.process_count())]
    aborts.know(hosts=[each["host"] for each in all_of_them], index=index)
    first = all_of_them[0]
    for number, each in enumerate(all_of_them):
        if differ := [name for name in first if name != "host" and each[name] != first[name]]:
            shown = "; ".join(_difference(name, first[name], each[name]) for name in differ)
            raise RunError(
                f"process {number} on {each['host']} is about to do something else than process 0 on {first['host']}:"
                f" {shown}"
            )
    return [each["host"] for each in all_of_them]


def _compare_clocks(hosts: Sequence[str]) -> None:
    """Warn if the clocks of this host and of process 0 differ; all have just met, so none waits for the time."""
    import jax

    index = jax.process_index()
    if index == 0:
        client().key_value_set(TIME, repr(time.time()))
        return
    ahead = time.time() - float(wait_for(TIME))
    if abs(ahead) > CLOCKS_SECONDS:
        differs = f"{abs(ahead):,.0f} s {'ahead of' if ahead > 0 else 'behind'}"
        warnings.warn(
            f"the clock of process {index} on {hosts[index]} is {differs} that of process 0 on {hosts[0]}; nothing is"
            " computed from it, but the times in their logs cannot be compared",
            DovetailWarning,
            stacklevel=2,
        )


def _difference(name: str, first: Any, other: Any) -> str:
    if not isinstance(first, dict):
        return f"{name} is {other!r}, and {first!r} in process 0"
    keys = sorted(key for key in first.keys() | other.keys() if first.get(key) != other.get(key))
    shown = ", ".join(
        f"{key} is {other.get(key, 'absent')}, and {first.get(key, 'absent')} in process 0" for key in keys[:SHOWN]
    )
    return f"{name}: {shown}" + (f" and {len(keys) - SHOWN} more" if len(keys) > SHOWN else "")


def _watch(ended: threading.Event, turn: threading.Lock) -> None:
    """End this process when another one reports that it has failed, whatever this one is waiting for.

    Args:
        ended: set when the run is over.
        turn: who has it says why this process ends; the main thread takes it for an error of its own.
    """
    import jax

    while not ended.is_set():
        try:
            said = json.loads(client().blocking_key_value_get(FAILED, 1000))
        except jax.errors.JaxRuntimeError as error:
            if "DEADLINE_EXCEEDED" in str(error):
                continue
            return  # the coordinator has ended, which JAX reports
        if turn.acquire(blocking=False):
            begin = f"error: process {said['process']} on {said['host']} has failed, and this one ends with it: "
            sys.stdout.flush()
            os.write(2, f"{begin}{said['message']}\n".encode())
            _exit_when_heard()
        return


def _leave_because_of(error: BaseException, deadline: int, turn: threading.Lock) -> None:
    """Report an error to the other processes, and do not wait for them at exit."""
    import jax

    text = " ".join(printable(error).split())
    if any(word in text for word in LOST):
        # another process has ended, which it reports itself, or JAX reports, which aborts this process
        time.sleep(deadline + LEAVING_SECONDS)
    turn.acquire()  # for good: where the watcher has it, this process is about to end
    what = text if isinstance(error, DovetailError) else f"{type(error).__name__} {text}".strip()
    said = {"process": jax.process_index(), "host": platform.node(), "message": what}
    with contextlib.suppress(jax.errors.JaxRuntimeError):  # another one may have been first
        client().key_value_set(FAILED, json.dumps(said))
    atexit.register(_exit_when_heard)


def _exit_when_heard() -> None:
    """End this process, process 0 after the others: it is the coordinator, and without it JAX aborts them.

    JAX's exit handlers are skipped, since they would wait for processes that never come.
    """
    import jax

    sys.stdout.flush()
    sys.stderr.flush()
    with contextlib.suppress(jax.errors.JaxRuntimeError):
        client().key_value_increment(HEARD, 1)
    ended_by = time.monotonic() + LEAVING_SECONDS
    while jax.process_index() == 0 and time.monotonic() < ended_by and not _all_have_heard():
        time.sleep(0.05)
    os._exit(1)


def _all_have_heard() -> bool:
    import jax

    try:
        return int(client().key_value_try_get(HEARD)) >= jax.process_count()
    except jax.errors.JaxRuntimeError:
        return False
