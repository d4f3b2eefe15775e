"""Errors meant for users: one line that says what happened, where, what was allowed, and what to do."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable


class DovetailError(Exception):
    """An error with a message for the user; the command line prints it without a traceback."""


class DovetailWarning(UserWarning):
    """A warning meant for the user, in one line as errors are: old names in a config, a plugin that cannot be used."""


class PluginError(DovetailError):
    """A plugin, or a component that it registers, breaks the contract."""


class UnknownNameError(DovetailError):
    """A name that is in no registry; the message lists what is and the nearest spelling."""


class ConfigError(DovetailError):
    """A configuration that cannot be run; the message says file and line."""


class PlanError(DovetailError):
    """The chosen components ask for a field that nobody provides."""


class DataError(DovetailError):
    """A task's data cannot be read; the message says file and line."""


class RewardError(DovetailError):
    """A reward raised, or returned something that is no list of numbers."""


class RunError(DovetailError):
    """A run that cannot start or go on (folder, disk, non-finite loss); what it has saved stays."""


class WorkerLost(DovetailError):
    """A process that ran a sweep's trials is gone; the message says how, as far as anybody knows."""


def nearest(word: str, allowed: Iterable[str]) -> str:
    """Return `` Did you mean 'x'?`` for the allowed word nearest to `word`, else an empty string.

    >>> nearest("gpso", ["grpo", "gspo"])
    " Did you mean 'gspo'?"
    >>> nearest("zzz", ["grpo", "gspo"])
    ''
    """
    close = difflib.get_close_matches(word, list(allowed), n=1, cutoff=0.6)
    return f" Did you mean {close[0]!r}?" if close else ""


def listing(allowed: Iterable[str], limit: int = 24) -> str:
    """Join names for a message, cut after `limit` of them.

    >>> listing(["b", "a"])
    'a, b'
    """
    names = sorted(allowed)
    shown = ", ".join(names[:limit])
    return f"{shown}, ... ({len(names)} in all)" if len(names) > limit else shown or "(none)"


LONGEST = 1500
"""Characters of a line that are shown."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(message: object) -> str:
    """Return text as a terminal may have it: control characters, which may come from a file, escaped; long lines cut.

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
