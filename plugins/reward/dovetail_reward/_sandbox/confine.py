"""Irrevocably drop this process's privileges: limits, then Landlock, capabilities and a system-call filter (Linux)."""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import signal
import sys
from collections.abc import Sequence
from typing import Final

from . import syscalls

OPEN_FILES: Final = 64
SIGNALS: Final = 64
"""Signals that may wait for it; they are counted for the whole user."""

_NO_NEW_PRIVILEGES, _SECCOMP, _SECCOMP_FILTER, _DUMPABLE, _PARENT_DEATH_SIGNAL = 38, 22, 2, 4, 1
_CREATE_RULESET, _ADD_RULE, _RESTRICT, _CAPSET = 444, 445, 446, {"x86_64": 126, "aarch64": 91}
_CAPABILITIES_3 = 0x20080522
_READ_FILE, _READ_DIR, _EXECUTE = 1 << 2, 1 << 3, 1 << 0
_FILE_RIGHTS: Final = (13, 14, 15, 15, 16)
"""The number of file access rights in each version of Landlock, from the first; later versions have as many as the
last one listed."""
_TCP, _SCOPES = 0b11, 0b11
_INSTALLED: Final = ("site-packages", "dist-packages")
_SHARED: Final = (
    *("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache", "/etc/localtime", "/usr/share/zoneinfo"),
    *("/dev/null", "/dev/urandom"),
)


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scopes", ctypes.c_uint64))


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("rights", ctypes.c_uint64), ("folder", ctypes.c_int32))


def limit(memory: int, seconds: int) -> None:
    """Limit address space, processor time and open files; forbid writing to files and core dumps."""
    bounds = {"AS": memory, "CPU": seconds, "FSIZE": 0, "NOFILE": OPEN_FILES, "CORE": 0}
    bounds |= {"SIGPENDING": SIGNALS, "MSGQUEUE": 0, "MEMLOCK": 0}
    for name, bound in bounds.items():
        try:
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (bound, bound))
        except (ValueError, OSError, AttributeError):
            if sys.platform == "linux":  # macOS does not bound address space, and has not all of them
                raise


def confine(folders: Sequence[str]) -> tuple[str, ...]:
    """Allow only computation, and reading these places and Python itself; return the protections that are in effect.

    `landlock`: no other file can be read, no TCP connection opened, no signal sent to other processes. `seccomp`: no
    file can be opened for writing, removed or changed, no process started, no socket created, no limit raised.
    """
    machine = platform.machine()
    if sys.platform != "linux" or machine not in syscalls.ARCHITECTURES:
        return ()
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)  # whoever reads its output may be ended before it
    libc.prctl(_DUMPABLE, 0, 0, 0, 0)
    if libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
        return ()
    held = ["landlock"] if _landlock(libc, (*folders, *_library(), *_SHARED), os.path.dirname(os.__file__)) else []
    _drop_capabilities(libc, _CAPSET[machine])
    steps = syscalls.program(machine, os.getpid())
    installed = libc.prctl(_SECCOMP, _SECCOMP_FILTER, ctypes.byref(_Filter(len(steps) // 8, steps)), 0, 0)
    return (*held, "seccomp") if installed == 0 else tuple(held)


def _library() -> list[str]:
    """Return what is in Python's own library, without the packages that are installed in it: they may hold answers."""
    with os.scandir(os.path.dirname(os.__file__)) as modules, os.scandir(f"{sys.base_prefix}/lib") as beside:
        own = [entry.path for entry in modules if entry.name not in _INSTALLED]
        return [*own, *(entry.path for entry in beside if ".so" in entry.name)]


def _landlock(libc: ctypes.CDLL, readable: Sequence[str], listed: str) -> bool:
    version = libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), 1)
    if version < 1:
        return False
    handled = _Ruleset((1 << _FILE_RIGHTS[min(version, len(_FILE_RIGHTS)) - 1]) - 1, _TCP, _SCOPES)
    size = 8 if version < 4 else 16 if version < 6 else 24
    ruleset = libc.syscall(_CREATE_RULESET, ctypes.byref(handled), ctypes.c_size_t(size), 0)
    if ruleset < 0:
        return False
    allowed = _allow(libc, ruleset, listed, _READ_DIR)  # Python looks for modules in a list of the folder
    allowed &= all(_allow(libc, ruleset, path, _READ_FILE | _EXECUTE) for path in readable if os.path.exists(path))
    done = allowed and libc.syscall(_RESTRICT, ruleset, 0) == 0
    os.close(ruleset)
    return done


def _allow(libc: ctypes.CDLL, ruleset: int, path: str, rights: int) -> bool:
    rights |= _READ_DIR if os.path.isdir(path) else 0
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    rule = _Beneath(rights, place)
    done = libc.syscall(_ADD_RULE, ruleset, 1, ctypes.byref(rule), 0) == 0
    os.close(place)
    return done


def _drop_capabilities(libc: ctypes.CDLL, number: int) -> None:
    """Drop root's capabilities, if the process runs as root."""
    header, none = (ctypes.c_uint32 * 2)(_CAPABILITIES_3, 0), (ctypes.c_uint32 * 6)()
    libc.syscall(number, header, none)
