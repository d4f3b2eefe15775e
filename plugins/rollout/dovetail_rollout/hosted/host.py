"""What hosts a model: the part of an engine that differs from program to program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import attrs

from dovetail.config.settings import Sampling


class HostLost(Exception):
    """The host is gone or of no use any more; the message says how, as far as anybody knows."""


@attrs.frozen
class Request:
    """One completion to be sampled: a prompt, without padding, and the seed of its random numbers (63 bits)."""

    prompt: list[int]
    seed: int


@attrs.frozen
class Answer:
    """A completion as sampled, its end included."""

    tokens: list[int]
    logps: list[float]


@attrs.frozen
class Failure:
    """A completion that could not be made, and why."""

    reason: str


@attrs.frozen(kw_only=True)
class Ends:
    """What ends a completion before its limit: an id, or `stopped`, which says how many tokens there are then."""

    eos_ids: tuple[int, ...]
    stopped: Callable[[Sequence[int]], int | None] | None


class Host(Protocol):
    """Serves one model, the weights of which can be replaced."""

    def start(self, folder: Path) -> None:
        """Serve the model in a folder; what was served before is gone.

        Raises:
            RunError: if that cannot be; the message says where to look.
        """
        ...

    def complete(self, requests: Sequence[Request], sampling: Sampling, ends: Ends) -> list[Answer | Failure]:
        """Complete each prompt.

        A completion may go on beyond where `ends.stopped` ends it; the caller cuts.

        Raises:
            HostLost: if nothing can be completed any more.
        """
        ...

    def load(self, folder: Path) -> None:
        """Replace the weights, and forget what was computed with the old ones.

        Raises:
            HostLost: if it is of no use now.
        """
        ...

    def stop(self) -> None:
        """Let go of everything; a second call does nothing."""
        ...
