"""The system calls that a confined program may make, as a filter for the kernel (seccomp, classic BPF).

Calls that are not listed fail as if the kernel did not implement them, so that a C library falls back on an older call,
and a call added by a later kernel is not allowed by accident. Among those not allowed are calls for processes, other
programs, signals to others, sockets and files opened for writing, and calls that change files, owners, limits or the
machine.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Sequence
from typing import Final

ARCHITECTURES: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""Little-endian machines whose numbers are known here, and what the kernel calls them (AUDIT_ARCH)."""

_ABSENT = -1
_ALLOWED: Final = {
    # memory
    "brk": (12, 214),
    "madvise": (28, 233),
    "membarrier": (324, 283),
    "mmap": (9, 222),
    "mprotect": (10, 226),
    "mremap": (25, 216),
    "munmap": (11, 215),
    # open files, and files opened for reading
    "access": (21, _ABSENT),
    "chdir": (80, 49),
    "close": (3, 57),
    "close_range": (436, 436),
    "dup": (32, 23),
    "dup2": (33, _ABSENT),
    "dup3": (292, 24),
    "faccessat": (269, 48),
    "faccessat2": (439, 439),
    "fchdir": (81, 50),
    "fstat": (5, 80),
    "fstatfs": (138, 44),
    "getcwd": (79, 17),
    "getdents64": (217, 61),
    "lseek": (8, 62),
    "lstat": (6, _ABSENT),
    "newfstatat": (262, 79),
    "pread64": (17, 67),
    "read": (0, 63),
    "readlink": (89, _ABSENT),
    "readlinkat": (267, 78),
    "readv": (19, 65),
    "stat": (4, _ABSENT),
    "statfs": (137, 43),
    "statx": (332, 291),
    "write": (1, 64),
    "writev": (20, 66),
    # waiting
    "alarm": (37, _ABSENT),
    "clock_nanosleep": (230, 115),
    "epoll_create1": (291, 20),
    "epoll_ctl": (233, 21),
    "epoll_pwait": (281, 22),
    "epoll_wait": (232, _ABSENT),
    "eventfd2": (290, 19),
    "futex": (202, 98),
    "nanosleep": (35, 101),
    "pause": (34, _ABSENT),
    "pipe": (22, _ABSENT),
    "pipe2": (293, 59),
    "poll": (7, _ABSENT),
    "ppoll": (271, 73),
    "pselect6": (270, 72),
    "select": (23, _ABSENT),
    "setitimer": (38, 103),
    # clocks, chance, and what a program may know of itself
    "clock_getres": (229, 114),
    "clock_gettime": (228, 113),
    "getcpu": (309, 168),
    "getegid": (108, 177),
    "geteuid": (107, 175),
    "getgid": (104, 176),
    "getitimer": (36, 102),
    "getpid": (39, 172),
    "getppid": (110, 173),
    "getrandom": (318, 278),
    "getrlimit": (97, 163),
    "getrusage": (98, 165),
    "gettid": (186, 178),
    "gettimeofday": (96, 169),
    "getuid": (102, 174),
    "sched_getaffinity": (204, 123),
    "sched_yield": (24, 124),
    "sysinfo": (99, 179),
    "time": (201, _ABSENT),
    "times": (100, 153),
    "umask": (95, 166),
    "uname": (63, 160),
    # threads, its own signals, its end
    "arch_prctl": (158, _ABSENT),
    "exit": (60, 93),
    "exit_group": (231, 94),
    "get_robust_list": (274, 100),
    "restart_syscall": (219, 128),
    "rseq": (334, 293),
    "rt_sigaction": (13, 134),
    "rt_sigpending": (127, 136),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "rt_sigsuspend": (130, 133),
    "rt_sigtimedwait": (128, 137),
    "set_robust_list": (273, 99),
    "set_tid_address": (218, 96),
    "sigaltstack": (131, 132),
}
_OPEN, _OPENAT = (2, _ABSENT), (257, 56)
_CLONE, _TGKILL, _PRLIMIT = (56, 220), (234, 131), (302, 261)
_FCNTL, _IOCTL = (72, 25), (16, 29)

_FOR_WRITING: Final = 0o1103
"""O_WRONLY, O_RDWR, O_CREAT and O_TRUNC."""
_CLONE_THREAD: Final = 0x10000
_FCNTL_COMMANDS: Final = (0, 1, 2, 3, 4, 1030)
"""F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL and F_DUPFD_CLOEXEC; others lock files that programs share, hold leases
on them, watch folders, or enlarge pipes at the cost of all the user's programs."""
_TCGETS, _FIOCLEX, _FIONCLEX = 0x5401, 0x5451, 0x5450

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _FAIL = 0x7FFF0000, 0x80000000, 0x00050000 | errno.ENOSYS
_X32: Final = 0x40000000
"""Numbers from here on belong to another interface, with 32-bit pointers."""

Step = tuple[int, int, int, int]
"""An instruction: operation, steps to skip if true, steps to skip if false, operand."""


def program(machine: str, pid: int) -> bytes:
    """Return the filter, in the kernel's format, for a process with this id on this type of machine.

    >>> len(program("x86_64", 1)) % 8
    0
    """
    column = tuple(ARCHITECTURES).index(machine)
    steps: list[Step] = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, ARCHITECTURES[machine]), (_RETURN, 0, 0, _KILL)]
    steps += [(_LOAD, 0, 0, 0), (_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, _FAIL)]
    for numbers in _ALLOWED.values():
        if numbers[column] != _ABSENT:
            steps += [(_EQUAL, 0, 1, numbers[column]), (_RETURN, 0, 0, _ALLOW)]
    for numbers, conditions in _conditions(pid):
        if numbers[column] != _ABSENT:
            steps += [(_EQUAL, 0, len(conditions), numbers[column]), *conditions]
    steps.append((_RETURN, 0, 0, _FAIL))
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


def _conditions(pid: int) -> list[tuple[tuple[int, int], list[Step]]]:
    """Return the instructions for calls that are allowed only with certain arguments; each ends with a return."""
    yes, no = (_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _FAIL)
    return [
        (_OPEN, [_argument(1), (_ANY_BIT, 1, 0, _FOR_WRITING), yes, no]),
        (_OPENAT, [_argument(2), (_ANY_BIT, 1, 0, _FOR_WRITING), yes, no]),
        (_CLONE, [_argument(0), (_ANY_BIT, 0, 1, _CLONE_THREAD), yes, no]),
        (_TGKILL, [_argument(0), (_EQUAL, 0, 1, pid), yes, no]),
        (_PRLIMIT, [_argument(2), (_EQUAL, 0, 3, 0), _argument(2, high=True), (_EQUAL, 0, 1, 0), yes, no]),
        (_FCNTL, [_argument(1), *_one_of(_FCNTL_COMMANDS), yes, no]),
        (_IOCTL, [_argument(1), *_one_of((_TCGETS, _FIOCLEX, _FIONCLEX)), yes, no]),
    ]


def _one_of(values: Sequence[int]) -> list[Step]:
    """Return the instructions that go on after the last of them if a value is there, and skip one more if none is."""
    last = len(values) - 1
    return [(_EQUAL, last - index, index == last, value) for index, value in enumerate(values)]


def _argument(index: int, *, high: bool = False) -> Step:
    return (_LOAD, 0, 0, 16 + 8 * index + (4 if high else 0))
