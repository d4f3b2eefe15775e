"""Episodes of several turns on a host, which may keep the tokens so far in a prefix cache of its own.

They go on turn by turn, all of them in rounds, or each by itself where host and agent loop can do that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
from jaxtyping import Array, Key

from dovetail.config.settings import Sampling
from dovetail.errors import RunError
from dovetail.protocols import Completions, Weights
from dovetail_rollout.hosted.busy import Busy
from dovetail_rollout.hosted.draft import Draft
from dovetail_rollout.hosted.host import Answer, Conversing, Ends, Failure, Interrupt, Request, least_pace
from dovetail_rollout.hosted.seeds import seeds_of

if TYPE_CHECKING:
    from dovetail_rollout.hosted.engine import HostedEngine


@attrs.frozen(kw_only=True)
class HostedTurns:
    """Completions of several turns; see `dovetail.protocols.Turns`.

    A round has a request for each episode that goes on and no other, and asks for no more tokens than fit into its
    episode: a server refuses a request that would be longer than its context.

    Attributes:
        sampling: its limit of tokens is that of a turn.
        said: the ids of each completion so far, with those of its prompt.
        full: the number of ids of each that end it.
        version: of the weights that the episodes have begun with.
        newer: see `HostedEngine.generate`; without it, all turns have the same weights.
    """

    engine: HostedEngine
    keys: Key[Array, "prompt sample"]
    sampling: Sampling
    said: list[list[int]]
    full: list[int]
    version: int
    newer: Callable[[], tuple[Weights, int] | None] | None

    def first(self) -> Completions:
        """Sample the first turns."""
        return self._sampled(range(len(self.said)), self.keys)

    def next(self, rows: Sequence[int], observed: Sequence[Sequence[int]], keys: Key[Array, "seq"]) -> Completions:
        """Sample the next turn of some completions.

        Raises:
            CompletionsFailed: if all of them failed.
            RunError: after `close`, and after a `sync` that `newer` has not asked for.
        """
        self._check_weights()
        for row, ids in zip(rows, observed, strict=True):
            self.said[row] += ids
        return self._sampled(rows, keys)

    def _check_weights(self) -> None:
        if self.newer is None and self.engine.version != self.version:
            raise RunError("the weights of this rollout engine were replaced in the middle of an episode")

    def _sampled(self, rows: Sequence[int], keys: Any) -> Completions:
        drawn = self.engine.complete(self._requests(rows, keys), self.sampling, self.newer)
        for row, ids, kept in zip(rows, drawn.tokens, drawn.mask, strict=True):
            self.said[row] += ids[kept].tolist()
        return drawn

    def _requests(self, rows: Sequence[int], keys: Any) -> list[Request]:
        """Return the requests for the next turns of some completions."""
        seeds = seeds_of(keys).ravel().tolist()
        rooms = [min(self.sampling.max_tokens, self.full[row] - len(self.said[row])) for row in rows]
        return [
            Request(list(self.said[row]), seed, limit=room) for row, seed, room in zip(rows, seeds, rooms, strict=True)
        ]


Then = Callable[[int, Completions], tuple[list[int], Key[Array, "1"]] | None]


class Spoilt(Exception):
    """Carries what an agent loop has raised past the host, which would take an error of the network for its own."""


@attrs.define(kw_only=True, eq=False)
class Talk:
    """The conversation of an episode with the host; one thread at a time has to do with it.

    Attributes:
        follow: returns the request after an answer; None after the last.
        ends: what ends a turn, of at most so many tokens as `usual` and its request say.
        draft: the turn that is being sampled; None after the last.
        last: the last answer.
        paces: the seconds per token of its turns, as far as they are known.
    """

    engine: HostedEngine
    follow: Callable[[Answer | Failure], Request | None]
    ends: Ends
    usual: int
    draft: Draft | None = None
    last: Answer | Failure | None = None
    paces: list[float] = attrs.field(factory=list)

    def begin(self, request: Request | None) -> None:
        """Begin a turn, if there is one; a request that the host is not to see fails at once."""
        while request is not None and (failure := self.engine.unfit(request)) is not None:
            self.last, request = failure, self.follow(failure)
        self.draft = request and Draft(request, partial(self.ends.are_met, most=request.most(self.usual)))

    def take(self, part: Answer | Failure) -> Request | None:
        """Take what the host has sampled of a turn, and return the request for the next if it was the whole of it."""
        assert self.draft is not None, "it was asked for"
        self.draft.take(part, self.engine.version)
        if self.draft.answer is None:  # newer weights go on with it
            return None
        self.last = self.draft.answer
        self.paces += [pace for pace in (least_pace([part]),) if pace is not None]
        self.begin(self.follow(self.last))
        return self.draft and self.draft.rest()


@attrs.frozen(kw_only=True)
class FreeTurns(HostedTurns):
    """Completions of several turns that can also go on without waiting for one another.

    Each has a conversation of its own with the host, and asks for its next turn as soon as something follows the last.
    A host that is lost and started again is asked for the turns that it has not answered, with the same seeds: what was
    said before is not sampled again, and no tool is called again.
    """

    def play(self, then: Then) -> None:
        """Sample all turns; see `dovetail.protocols.Turns`.

        Raises:
            CompletionsFailed: if the last turns of all completions failed.
            RunError: as `next`, or if the host is lost for good.
        """
        ends, rows, busy, context = self.engine.ends(self.sampling), range(len(self.said)), Busy(), copy_context()
        talks = [
            Talk(
                engine=self.engine,
                follow=partial(self._follow, row, ends, busy, partial(context.copy().run, then)),
                ends=ends,
                usual=self.sampling.max_tokens,
            )
            for row in rows
        ]
        try:
            for talk, request in zip(talks, self._requests(rows, self.keys), strict=True):
                talk.begin(request)
            while any(talk.draft for talk in talks):
                self._converse(talks, ends)
        except Spoilt as spoilt:
            raise spoilt.args[0] from None
        finally:
            busy.note("tools")
        self.engine.pace = min((pace for talk in talks for pace in talk.paces), default=None)
        self.engine.report([talk.last for talk in talks if talk.last is not None])

    def _converse(self, talks: Sequence[Talk], ends: Ends) -> None:
        """Have the host continue the conversations until they are over or newer weights break them off."""
        host, interrupt = self.engine.host, None if self.newer is None else Interrupt(self.newer)
        assert isinstance(host, Conversing), "it was asked before"

        def converse() -> None:
            going = [(talk, talk.draft.rest()) for talk in talks if talk.draft]
            if going:
                requests, until = [request for _, request in going], attrs.evolve(ends, interrupt=interrupt)
                host.converse(requests, self.sampling, until, lambda place, answer: going[place][0].take(answer))

        self.engine.with_restarts(converse)
        if interrupt is not None and interrupt.found is not None:
            self.engine.sync(*interrupt.found)

    def _follow(self, row: int, ends: Ends, busy: Busy, then: Then, answer: Answer | Failure) -> Request | None:
        """Return the request for what follows a turn."""
        drawn = self.engine.completions([answer], self.sampling, ends, self.engine.version)
        self.said[row] += drawn.tokens[0][drawn.mask[0]].tolist()
        try:
            with busy.call("tools"):
                found = then(row, drawn)
        except Exception as error:
            raise Spoilt(error) from error
        if found is None:
            return None
        self._check_weights()
        ids, keys = found
        self.said[row] += ids
        return self._requests([row], keys)[0]
