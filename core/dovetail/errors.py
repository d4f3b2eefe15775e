"""Errors meant for users: one line that says what happened, where, what is allowed, and what to do."""

from __future__ import annotations

import difflib
import errno
import re
from collections.abc import Iterable
from typing import Final

DISK: Final = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)
"""What is the matter with the disk, and not with a plugin, wherever it is met."""


class DovetailError(Exception):
    """An error with a message for the user; the command line prints it without a traceback."""


class DovetailWarning(UserWarning):
    """A one-line warning meant for the user, for example about an old name in a config or an unusable plugin."""


class PluginError(DovetailError):
    """A plugin, or a component that it registers, violates its contract."""


class UnknownNameError(DovetailError):
    """A name is not registered; the message lists the registered names and gives the nearest one."""


class ConfigError(DovetailError):
    """A configuration is invalid; the message gives the file and line."""


class PlanError(DovetailError):
    """A chosen component reads a field that nothing provides, or the chosen components are incompatible."""


class DataError(DovetailError):
    """A task's data cannot be read; the message gives the file and line."""


class RewardError(DovetailError):
    """A reward raised an exception, or returned something other than a list of numbers."""


class RunError(DovetailError):
    """A run cannot start or continue (folder, disk, non-finite loss); everything it has saved is kept."""


class CompletionsFailed(RunError):
    """A rollout engine could not sample any of the completions that it was asked for, and may be asked for others."""


class WorkerLost(DovetailError):
    """A process that ran a sweep's trials has ended unexpectedly; the message gives the cause, if known."""


def nearest(word: str, allowed: Iterable[str]) -> str:
    """Return `` Did you mean 'x'?`` for the allowed word nearest to `word`, or an empty string if none is similar.

    >>> nearest("gpso", ["grpo", "gspo"])
    " Did you mean 'gspo'?"
    >>> nearest("zzz", ["grpo", "gspo"])
    ''
    """
    close = closest(word, allowed)
    return "" if close is None else f" Did you mean {close!r}?"


def closest(word: str, allowed: Iterable[str], similar: float = 0.6) -> str | None:
    """Return the allowed word nearest to `word`, or None if none is so `similar`, from 0 to 1 for the same word.

    >>> closest("gpso", ["grpo", "gspo"])
    'gspo'
    """
    close = difflib.get_close_matches(word, list(allowed), n=1, cutoff=similar)
    return close[0] if close else None


def listing(allowed: Iterable[str], limit: int = 24) -> str:
    """Join sorted names for a message, at most `limit` of them.

    >>> listing(["b", "a"])
    'a, b'
    """
    names = sorted(allowed)
    shown = ", ".join(names[:limit])
    return f"{shown}, ... ({len(names)} in all)" if len(names) > limit else shown or "(none)"


LONGEST = 1500
"""The number of characters of a line that are shown."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(message: object) -> str:
    """Return text that is safe to print on a terminal: control characters are escaped, and long lines shortened.

    A message may quote text from a file, which may contain anything.

    >>> printable("unknown name '\x1b[31mred'")
    "unknown name '\\\\x1b[31mred'"
    """
    shown = _CONTROL.sub(lambda found: repr(found[0])[1:-1], str(message))
    return "\n".join(_cut(line) for line in shown.split("\n"))


def _cut(line: str) -> str:
    if len(line) <= LONGEST:
        return line
    half = LONGEST // 2
    return f"{line[:half]} ... ({len(line) - 2 * half:,} characters) ... {line[-half:]}"
