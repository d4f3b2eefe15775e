"""Errors meant for users: one line that says what happened, where, what was allowed, and what to do."""

from __future__ import annotations

import difflib
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
