"""Run a function in separate processes, with a time limit per call that always holds.

A signal handler would not be enough: it waits for an operation such as 9**9**9 to finish, and runs only in the main
thread. A process can be ended at any time, here by a watchdog thread in C (`faulthandler`), which needs neither the
interpreter nor the parent. Each process leads a process group, so that everything the function starts ends with it; a
guard in the group ends it if the parent is killed.

The processes exchange pickled data: they belong to one program with the same privileges, and no other process can write
to their pipes. Nothing that comes from a file or a network is ever unpickled.
"""

from __future__ import annotations

import atexit
import faulthandler
import functools
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from queue import LifoQueue
from typing import Any, BinaryIO, Final, Protocol

import attrs

from dovetail.cli.terminal import streams, take_standard_descriptors


@attrs.frozen
class _NoResult:
    name: str

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> str:
        return self.name  # the same object in every process


LATE: Final = _NoResult("LATE")
"""Stands for the result of a call that did not finish in time or, without retries, during which its process ended."""

LOST: Final = _NoResult("LOST")
"""Stands for the result of a call during which its process ended before its time, in each attempt."""

DAY: Final = 86_400
"""In seconds: the longest time limit, since the watchdog needs a finite one."""


def cores() -> int:
    """Return how many cores this process may use, which a container or a scheduler limits on most systems."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS
        return os.cpu_count() or 1


class CallError(Exception):
    """The function raised an exception, which the message describes."""


Make = Callable[[], Callable[..., Any]]
"""Returns the function that workers call."""


class Worker(Protocol):
    """A place where the function is called, such as a process or an actor."""

    def call(self, time_limit: float, arguments: Sequence[Any]) -> Any:
        """Return a result, `LATE` or `LOST`; after either of these the next call has a new process."""
        ...

    def close(self) -> None:
        """End it; a later call starts it again."""
        ...


@attrs.frozen
class Packed:
    """A function that goes to another process as bytes; it can be hashed, whatever its parameters are.

    Attributes:
        data: the pickled function.
        files: Python files, not on the import path there, that are imported first under their own names.
    """

    data: bytes
    files: tuple[str, ...] = ()

    @classmethod
    def of(cls, function: Callable[..., Any], files: tuple[str, ...] = ()) -> Packed:
        """Return a function as bytes; raises what `pickle.dumps` raises if it cannot be pickled."""
        return cls(pickle.dumps(function), files)

    def __call__(self) -> Callable[..., Any]:
        """Return the function."""
        from dovetail.registry.one_file import imported

        for file in self.files:
            if Path(file).stem not in sys.modules:
                imported(Path(file))
        return pickle.loads(self.data)


class Workers:
    """A function in several processes, which start on first use and restart after a late call.

    Args:
        make: returns the function; called once in each process, without a time limit. It must be picklable.
        processes: the number of processes; None is one for each core.
        retries: how often a call is tried again, in a new process, if its process ends before its time.
        worker: makes a worker from `make`; by default one that is a process of this machine.

    >>> with Workers(functools.partial(getattr, int, "__pow__"), processes=1) as workers:
    ...     workers.map([(2, 3), (2, 5)], time_limit=60), workers.map([(9, 9**9)], time_limit=1.0)
    ([8, 32], [LATE])
    """

    def __init__(
        self, make: Make, processes: int | None, *, retries: int = 0, worker: Callable[[Make], Worker] | None = None
    ) -> None:
        self._workers = [(worker or Process)(make) for _ in range(cores() if processes is None else processes)]
        self._retries = retries
        self._idle: LifoQueue[Worker] = LifoQueue()  # the last one first, so that few calls start few processes
        for each in self._workers:
            self._idle.put(each)

    def map(
        self, calls: Sequence[Sequence[Any]], *, time_limit: float, until: Callable[[Any], bool] = lambda _: False
    ) -> list[Any]:
        """Return the results of calls with these arguments, in order.

        Args:
            calls: the positional arguments of each call.
            time_limit: in seconds, for each call; the result of a call that takes longer is `LATE`. With retries, the
                result of a call whose process has ended in each attempt is `LOST`.
            until: a result for which this holds is the last one, and calls that have not begun by then are not made.

        Raises:
            CallError: if the function or `make` raised an exception.
            ValueError: if the time limit is not positive, or longer than a day.
        """
        if not 0 < time_limit <= DAY:
            raise ValueError(f"time_limit is {time_limit} s; it must be positive, and at most a day ({DAY} s)")
        with ThreadPoolExecutor(max(1, min(len(self._workers), len(calls)))) as threads:
            results = [threads.submit(self._call, time_limit, arguments) for arguments in calls]
            try:
                found: list[Any] = []
                while len(found) < len(results) and not (found and until(found[-1])):
                    found.append(results[len(found)].result())
                return found
            finally:
                for each in results:
                    each.cancel()

    def call(self, *arguments: Any, time_limit: float) -> Any:
        """Return the result of one call, as `map` does, in this thread."""
        return self._call(time_limit, arguments)

    def _call(self, time_limit: float, arguments: Sequence[Any]) -> Any:
        worker = self._idle.get()
        try:
            result = worker.call(time_limit, arguments)
            for _ in range(self._retries):
                result = worker.call(time_limit, arguments) if result is LOST else result
            return LATE if result is LOST and not self._retries else result
        finally:
            self._idle.put(worker)

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the processes; a later call restarts them."""
        for worker in self._workers:
            worker.close()


@functools.cache
def workers(
    make: Make, processes: int | None, *, retries: int = 0, worker: Callable[[Make], Worker] | None = None
) -> Workers:
    """Return the workers of a function, the same object for the same arguments; they end with the program."""
    pool = Workers(make, processes, retries=retries, worker=worker)
    atexit.register(pool.close)
    return pool


@attrs.define
class Process:
    """The parent's side of one process of this machine, a `Worker`."""

    make: Make
    process: subprocess.Popen[bytes] | None = None
    lifeline: int = -1
    """The end of a pipe that closes with the parent, however that ends."""

    def call(self, time_limit: float, arguments: Sequence[Any]) -> Any:
        """Return the result of a call, `LATE` or `LOST`.

        Raises:
            CallError: if the function or `make` raised an exception.
        """
        if self.process is not None and _has_ended(self.process):  # something else ended it
            self.close()
        process = self.process or self._start()
        question, begin = (time_limit, pickle.dumps(arguments)), time.monotonic()
        try:
            answer = _ask(process, question)
        except (EOFError, OSError, pickle.UnpicklingError):
            self.close()
            return LATE if time.monotonic() - begin >= time_limit else LOST
        return _value(answer)

    def _start(self) -> subprocess.Popen[bytes]:
        take_standard_descriptors()  # so that the pipe has another number
        ours, self.lifeline = os.pipe()
        program = f"import sys; sys.path[:] = {sys.path!r}; from dovetail_kit.workers import serve; serve({ours})"
        command = [sys.executable, "-c", program]
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL if sys.stderr is None else None,  # it was closed, and may be another file now
                start_new_session=True,
                pass_fds=(ours,),
            )
        finally:
            os.close(ours)
        self.process = process
        try:
            _value(_ask(process, self.make))
        except (EOFError, OSError) as error:
            self.close()
            raise CallError("its process ended before it was ready") from error
        except CallError:
            self.close()
            raise
        return process

    def close(self) -> None:
        """End the process and all that it has started."""
        process, self.process = self.process, None
        if process is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            os.close(self.lifeline)


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether a process has ended, without reaping it: until then its id is not reused, and its group can be killed."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _ask(process: subprocess.Popen[bytes], question: Any) -> tuple[bool, Any]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(pickle.dumps(question))
    process.stdin.flush()
    return pickle.load(process.stdout)


def _value(answer: tuple[bool, Any]) -> Any:
    done, value = answer
    if not done:
        raise CallError(value)
    return value


def _guard(lifeline: int) -> None:
    """Have a process of this one's group end the group when the parent does; it must start before any thread.

    Only a member of the group can do so safely: the group's id is not reused while it lives.
    """
    if os.fork():
        os.close(lifeline)
        return
    os.close(0)
    os.close(1)  # as long as anybody holds it, the parent would not see that the worker has ended
    os.read(lifeline, 1)
    os.killpg(0, signal.SIGKILL)


def serve(lifeline: int) -> None:
    """Run as a worker: read calls from stdin and write results to stdout.

    The function's own output goes to stderr, and is lost if nobody reads that any more.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt means
    _guard(lifeline)
    questions, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    made: list[Callable[..., Any]] = []
    with streams(), open(os.devnull, "w") as nowhere:
        _answer(answers, lambda: made.append(pickle.load(questions)()))
        while made:
            time_limit, arguments = pickle.load(questions)  # the guard ends this process before the questions end
            faulthandler.dump_traceback_later(time_limit, exit=True, file=nowhere)
            _answer(answers, lambda: made[0](*pickle.loads(arguments)))  # noqa: B023 - called at once


def _answer(answers: BinaryIO, work: Callable[[], Any]) -> None:
    """Write (True, result), or (False, message) if `work` raises an exception."""
    try:
        answer = pickle.dumps((True, work()))
    except Exception as error:
        answer = pickle.dumps((False, f"{type(error).__name__}: {error}"))
    faulthandler.cancel_dump_traceback_later()
    answers.write(answer)
    answers.flush()
