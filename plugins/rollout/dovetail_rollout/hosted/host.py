"""Hosts of a model: the part of an engine that differs from program to program."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Final, Protocol, runtime_checkable

import attrs

from dovetail.config.settings import Sampling
from dovetail.protocols import Weights
from dovetail_rollout.hosted.calls import Place

LOOK_SECONDS: Final = 0.05
"""Between two looks for newer weights."""


class HostLost(Exception):
    """The host is gone or can no longer be used; the message says what is known about the cause."""


@attrs.frozen
class Request:
    """A completion to sample: a prompt without padding, and where its random numbers come from.

    Attributes:
        seed: 63 bits made from the completion's key.
        key: the words of the key itself, for hosts that draw as we do.
        drawn: how many tokens at the end of the prompt are the completion's own, sampled by earlier weights.
        limit: how many tokens the completion may have; None is as many as any.
        place: its place in its batch; None if it has none.
    """

    prompt: list[int]
    seed: int
    key: tuple[int, ...] = ()
    drawn: int = 0
    limit: int | None = None
    place: Place | None = None

    def most(self, usual: int) -> int:
        """Return how many tokens may be sampled for it, where `usual` is the limit of any.

        >>> [Request([5, 6], seed=1, drawn=1, limit=limit).most(8) for limit in (None, 3)]
        [7, 2]
        """
        return (usual if self.limit is None else self.limit) - self.drawn


@attrs.frozen
class Answer:
    """A completion as sampled, including its end.

    Attributes:
        cut: whether it was broken off by an interrupt, and has no end yet.
        versions: the version of the weights that sampled each token; None is that of the call.
        seconds: from the question to the answer, the time in a queue of the host included; None if nobody looked.
    """

    tokens: list[int]
    logps: list[float]
    cut: bool = False
    versions: list[int] | None = None
    seconds: float | None = None


@attrs.frozen
class Failure:
    """A completion that could not be sampled, and why."""

    reason: str


def least_pace(drawn: Iterable[Answer | Failure]) -> float | None:
    """Return the seconds per token of the fastest completion; None if nobody looked at a clock.

    >>> least_pace([Answer([5, 6], [-1.0, -1.0], seconds=3.0), Answer([7], [-1.0], seconds=2.0), Failure("lost")])
    1.5
    """
    answers = [answer for answer in drawn if isinstance(answer, Answer) and answer.tokens]
    return min((answer.seconds / len(answer.tokens) for answer in answers if answer.seconds is not None), default=None)


@attrs.frozen
class Overdue:
    """A completion that did not come in time from a host that answers others; another host may be asked for it."""

    reason: str


@attrs.define(eq=False)
class Interrupt:
    """Breaks off a host's completions as soon as there are newer weights.

    Attributes:
        newer: returns newer weights with their version, or None; called from one thread only.
        found: what it returned; hosts look at this from any thread.
    """

    newer: Callable[[], tuple[Weights, int] | None]
    found: tuple[Weights, int] | None = None

    def poll(self) -> bool:
        """Look for newer weights, and return whether the completions are to be broken off."""
        if self.found is None:
            self.found = self.newer()
        return self.found is not None


@attrs.frozen(kw_only=True)
class Ends:
    """What ends a completion before its limit: an id, or `stopped`, which returns the number of tokens to keep.

    It takes the tokens, and how many of them are known not to contain a stop string; none, if that is left out. With an
    `interrupt` the host polls it from the thread of the call, and then returns what it has, as cut.
    """

    eos_ids: tuple[int, ...]
    stopped: Callable[..., int | None] | None
    interrupt: Interrupt | None = None

    def are_met(self, tokens: Sequence[int], most: int) -> bool:
        """Return whether tokens are a whole completion, of `most` tokens at most."""
        if len(tokens) >= most or (tokens and tokens[-1] in self.eos_ids):
            return True
        return self.stopped is not None and self.stopped(tokens) is not None

    @property
    def interrupted(self) -> bool:
        """Whether completions are to be broken off."""
        return self.interrupt is not None and self.interrupt.found is not None

    def look(self, usual: float) -> float:
        """Return how many seconds to wait for an answer before looking again; `usual` if there is no interrupt."""
        return usual if self.interrupt is None else min(usual, LOOK_SECONDS)

    def interrupts_now(self) -> bool:
        """Poll the interrupt, if there is one, and return whether this is when it begins."""
        return self.interrupt is not None and not self.interrupted and self.interrupt.poll()


Then = Callable[[int, Answer | Failure], Request | None]
"""What follows the answer to a request, by the place of its conversation in a batch; None if nothing does."""


class Host(Protocol):
    """Serves a model whose weights can be replaced."""

    @property
    def reading(self) -> Collection[Path]:
        """Older folders that it still reads, which must not be removed yet."""
        ...

    def start(self, folder: Path) -> None:
        """Serve the model in a folder in place of the one before.

        Raises:
            RunError: if that fails; the message says where to look.
        """
        ...

    def complete(self, requests: Sequence[Request], sampling: Sampling, ends: Ends) -> list[Answer | Failure]:
        """Complete each prompt, with at most `request.most(sampling.max_tokens)` tokens.

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


@runtime_checkable
class Conversing(Host, Protocol):
    """A host that takes a request while it completes others, so that an episode goes on when its own turn is there."""

    def converse(self, requests: Sequence[Request], sampling: Sampling, ends: Ends, then: Then) -> None:
        """Complete each prompt, and then what `then` returns for it, until that is None.

        Args:
            requests: the first of each conversation.
            sampling: for all of them.
            ends: what ends a completion. After an interrupt each conversation has one more answer, which may be cut.
            then: called with the place of a conversation among the requests and the answer to its last request, in
                threads of the host, for several conversations at a time.

        Raises:
            HostLost: if the host can no longer complete anything. `then` is not called any more after that.
            Exception: what `then` raises, unless it is an `OSError` or a `HostLost`.
        """
        ...


class Replica(Host, Protocol):
    """A host that can be one of several; see `dovetail_rollout.hosted.fleet.Fleet`.

    Attributes:
        calls: how many calls of `share` it takes at a time.
    """

    calls: int

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
        """Break off all calls that are waiting for an answer, and refuse others until `reconnect`."""
        ...

    def reconnect(self) -> None:
        """Let it be called again after `cut`, if it is there; no call is under way."""
        ...

    def hang_up(self) -> None:
        """Break off completions that were interrupted, even those of which nothing has been sampled yet."""
        ...

    def epitaph(self, what: str) -> str:
        """Say what happened, where, and how its process ended."""
        ...
