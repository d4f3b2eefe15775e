"""Hosts of a model: the part of an engine that differs from program to program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import attrs

from dovetail.config.settings import Sampling


class HostLost(Exception):
    """The host is gone or can no longer be used; the message says what is known about the cause."""


@attrs.frozen
class Request:
    """A completion to sample: a prompt without padding, and where its random numbers come from.

    Attributes:
        seed: 63 bits made from the completion's key.
        key: the words of the key itself, for hosts that draw as we do.
    """

    prompt: list[int]
    seed: int
    key: tuple[int, ...] = ()


@attrs.frozen
class Answer:
    """A completion as sampled, including its end."""

    tokens: list[int]
    logps: list[float]


@attrs.frozen
class Failure:
    """A completion that could not be sampled, and why."""

    reason: str


@attrs.frozen
class Overdue:
    """A completion that did not come in time from a host that answers others; another host may be asked for it."""

    reason: str


@attrs.frozen(kw_only=True)
class Ends:
    """What ends a completion before its limit: an id, or `stopped`, which returns the number of tokens to keep.

    It takes the tokens, and how many of them are known not to contain a stop string; none, if that is left out.
    """

    eos_ids: tuple[int, ...]
    stopped: Callable[..., int | None] | None


class Host(Protocol):
    """Serves a model whose weights can be replaced."""

    def start(self, folder: Path) -> None:
        """Serve the model in a folder in place of the one before.

        Raises:
            RunError: if that fails; the message says where to look.
        """
        ...

    def complete(self, requests: Sequence[Request], sampling: Sampling, ends: Ends) -> list[Answer | Failure]:
        """Complete each prompt.

        A completion may go on beyond the point where `ends.stopped` ends it; the caller cuts it.

        Raises:
            HostLost: if the host can no longer complete anything.
        """
        ...

    def load(self, folder: Path) -> None:
        """Replace the weights and drop what was computed with the old ones.

        Raises:
            HostLost: if the host can no longer be used.
        """
        ...

    def stop(self) -> None:
        """Release everything; a second call does nothing."""
        ...


class Replica(Host, Protocol):
    """A host that can be one of several; see `dovetail_rollout.hosted.fleet.Fleet`.

    Attributes:
        calls: how many calls of `share` it takes at a time.
        at_once: how many requests a call may have; None is any number, for hosts that batch a call themselves.
    """

    calls: int
    at_once: int | None

    def share(
        self, requests: Sequence[Request], sampling: Sampling, ends: Ends
    ) -> Sequence[Answer | Failure | Overdue]:
        """Complete some prompts; called from several threads.

        Raises:
            HostLost: if it can no longer complete anything, or `cut` was called meanwhile.
        """
        ...

    def healthy(self) -> bool:
        """Tell whether it still answers, in a limited time."""
        ...

    def cut(self) -> None:
        """Break off all calls that are waiting for an answer."""
        ...

    def epitaph(self, what: str) -> str:
        """Say what happened, where, and how its process ended."""
        ...
