"""Prepares a process for runs."""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from dovetail.errors import DovetailWarning, RunError

CACHE = "JAX_COMPILATION_CACHE_DIR"
THREADS: Final = "PJRT_NPROC"
"""The variable with the number of threads of XLA's CPU client, which starts as many as there are cores without it."""
LATER: Final = ("Event loop is closed", "cannot schedule new futures after interpreter shutdown")
"""What fails once nobody waits for it any more."""
LOGGED: Final = {
    "absl": "_SignalingThread.run() raised an exception",
    "asyncio": "exception was never retrieved",
}
"""What is logged, by logger, of an error that is raised as well."""

_CALLS: Final[list[ExitStack]] = []
"""What undoes the preparation of a process for calls, and an entry for each call."""
_CHANGING: Final = threading.Lock()


def prepare() -> ExitStack:
    """Silence messages of libraries, and enable the persistent cache of compiled programs.

    Returns:
        What undoes it, when it is closed; a process that is there for the run alone need not.

    Raises:
        RunError: if JAX is set to 64 bits.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # JAX sets it when it is imported, if nobody has
    import jax

    if jax.config.read("jax_enable_x64"):
        raise RunError("JAX_ENABLE_X64 is set, and runs compute in 32 bits; unset it")
    undo = ExitStack()
    _start_enough_threads(jax, undo)
    _keep_programs(jax, undo)
    _hush_later_errors(undo)
    if logging.lastResort and not logging.root.handlers:  # absl would add one for good, and later settings do nothing
        logging.root.addHandler(logging.lastResort)
        undo.callback(logging.root.removeHandler, logging.lastResort)
    absl = logging.getLogger("absl")  # of orbax
    undo.callback(absl.setLevel, absl.level)
    absl.setLevel(logging.ERROR)
    return undo


@contextmanager
def prepared() -> Iterator[None]:
    """Prepare the process for a call from Python. The last of several calls, in threads, leaves it as it was."""
    with _CHANGING:
        _CALLS.extend([] if _CALLS else [prepare()])
        _CALLS.append(ExitStack())
    try:
        yield
    finally:
        with _CHANGING:
            _CALLS.pop()
            if len(_CALLS) == 1:
                _CALLS.pop().close()


def cache_folder() -> str:
    """Return where compiled programs are kept, a folder or an address; empty where there is no place for them.

    An empty or relative `XDG_CACHE_HOME` counts as not set, as its specification has it: otherwise each working folder
    would get a cache.
    """
    if CACHE in os.environ:
        return os.environ[CACHE]
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        home = named if named.is_absolute() else Path.home() / ".cache"
    except RuntimeError:  # neither HOME nor an account
        return ""
    return str(home / "dovetail" / "xla")


def refusal(folder: str) -> str:
    """Return why a folder cannot hold the cache; empty if it can, and for an address."""
    if not folder or "://" in folder:
        return ""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        return getattr(error, "strerror", None) or str(error)
    return "" if os.access(folder, os.W_OK | os.X_OK) else "Permission denied"


def _start_enough_threads(jax: Any, undo: ExitStack) -> None:
    """Have XLA start two threads for each of several devices of the CPU, unless the variable says how many.

    For each device one thread may wait in a collective for the other devices, and one to start a program, of which a
    device takes 32 at a time. With fewer threads none may be left for the device that the others wait for, and after
    40 seconds XLA aborts the process: on two cores that happens with two devices.
    """
    counts = re.findall(r"xla_force_host_platform_device_count=(\d+)", os.environ.get("XLA_FLAGS", ""))
    most = max(jax.config.jax_num_cpu_devices, *map(int, counts), 1)
    if most > 1 and THREADS not in os.environ:
        os.environ[THREADS] = str(max(2 * most, os.cpu_count() or 1))
        undo.callback(os.environ.pop, THREADS, None)


def _keep_programs(jax: Any, undo: ExitStack) -> None:
    """Have JAX keep compiled programs, in the folder that the program has chosen itself if there is one.

    Without a warning of ours, JAX has one of two lines for each program that it cannot keep.
    """
    from jax.experimental.compilation_cache.compilation_cache import reset_cache

    folder = jax.config.jax_compilation_cache_dir or cache_folder()
    if why := refusal(folder):
        said = f"compiled programs are not kept: folder '{folder}' cannot be written: {why}; set {CACHE} to another"
        warnings.warn(said, DovetailWarning, stacklevel=3)
        folder = ""
    seconds = {} if CACHE in os.environ else {"jax_persistent_cache_min_compile_time_secs": 0.5}
    undo.callback(reset_cache)
    for name, value in {"jax_compilation_cache_dir": folder or None, **seconds}.items():
        undo.callback(jax.config.update, name, getattr(jax.config, name))
        jax.config.update(name, value)
    reset_cache()  # JAX goes on with the folder that it has used first


def _hush_later_errors(undo: ExitStack) -> None:
    """Print no tracebacks of what nobody awaits any more, until `undo` is closed.

    When an array cannot be read or written, tensorstore prints one for every other array, and the threads of orbax
    print theirs, some as the interpreter ends. What has gone wrong is raised as well.
    """
    for owner, name in ((sys, "excepthook"), (sys, "unraisablehook"), (threading, "excepthook")):
        _hush(owner, name, undo)
    for name, said in LOGGED.items():
        logger, filter = logging.getLogger(name), lambda record, said=said: said not in record.getMessage()
        logger.addFilter(filter)
        undo.callback(logger.removeFilter, filter)


def _hush(owner: Any, name: str, undo: ExitStack) -> None:
    report = getattr(owner, name)

    def hook(*found: Any) -> None:
        what, *more = found  # a type with its error and traceback, or an object that has all
        error = more[0] if more else what.exc_value
        if not (type(error) is RuntimeError and str(error) in LATER):
            report(*found)

    def put_back() -> None:
        if getattr(owner, name) is hook:  # one that came later stays, and has ours behind it
            setattr(owner, name, report)

    setattr(owner, name, hook)
    undo.callback(put_back)
