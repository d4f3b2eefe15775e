"""Records which replica has which request of a batch, and the answers; it does not use threads or clocks."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Sequence
from typing import Final

import attrs

from dovetail_rollout.hosted.host import Answer, Failure, Overdue
from dovetail_rollout.hosted.prefixes import Prefixes

TRIES: Final = 2
"""Replicas that are asked for a completion that does not come in time."""


@attrs.frozen
class Room:
    """The capacity of a replica: so many concurrent calls."""

    replica: int
    calls: int


@attrs.frozen
class Sending:
    """Requests, by their positions in the batch, that are sent to a replica, and the tokens that it has to compute."""

    number: int
    replica: int
    ordinals: tuple[int, ...]
    tokens: int


@attrs.define(eq=False)
class Ledger:
    """The requests of one batch, by their positions in it.

    Consecutive requests with the same call are sent together, and so lost together.

    A request is waiting, or with a replica, or answered. One that is answered may be away until it is known what
    follows it, and then wait again as another request. All of this follows from `answers` and `flying`; there are no
    separate counters that could be wrong. Only the first answer to a request counts: the request of a lost replica may
    be sent again, with the same seed, but never has two answers.

    A request costs less at a replica that has computed a prefix of it, and goes elsewhere only if that one has so much
    more to do.

    Attributes:
        costs: the number of tokens of each request, its prompt's and those that it may sample.
        calls: the call that each request belongs to.
        prefixes: what replicas have computed; None if they keep nothing of it.
        answers: the answers by position in the batch; None if there is none yet.
        waiting: positions of the requests that are not with a replica, in order.
        flying: the requests with replicas, by replica and by the number of the sending.
        overdue: by position, the replicas that did not answer a request in time and are not lost.
        away: the answered requests that another one may follow.
        begun: by position, the first sending that can answer the request there; those before were of earlier ones.

    >>> ledger = Ledger.of([10, 10, 10])
    >>> rooms = [Room(0, calls=9), Room(1, calls=9)]
    >>> [(sending.replica, sending.ordinals) for sending in ledger.route(rooms)]
    [(0, (0,)), (1, (1,)), (0, (2,))]
    >>> ledger.lose(0)
    >>> [(sending.replica, sending.ordinals) for sending in ledger.route(rooms[1:])]
    [(1, (0,)), (1, (2,))]

    Of a prompt that two replicas have been sent, further samples cost each of them only what is to be sampled; the
    next turn of an episode goes to where the last one was, although the other replica has less to do:

    >>> ledger = Ledger.of([100, 100, 100, 10], prefixes=Prefixes([90, 90, 90, 5], groups=[0, 0, 0, 1]))
    >>> sent = ledger.route(rooms)
    >>> [(sending.replica, sending.ordinals, sending.tokens) for sending in sent]
    [(0, (0,), 100), (1, (1,), 100), (0, (2,), 10), (1, (3,), 10)]
    >>> ledger.take(sent[0], [Answer([5], [-1.0])]), ledger.take(sent[1], [Answer([6], [-1.0])])
    ([0], [1])
    >>> _ = ledger.leave(0), ledger.go_on(0, cost=130, prompt=120), ledger.leave(1), ledger.go_on(1, None)
    >>> [(sending.replica, sending.ordinals, sending.tokens) for sending in ledger.route(rooms)]
    [(0, (0,), 39)]
    """

    costs: list[int]
    calls: Sequence[Hashable]
    answers: list[Answer | Failure | None]
    waiting: list[int]
    prefixes: Prefixes | None = None
    flying: dict[int, dict[int, Sending]] = attrs.field(factory=dict)
    overdue: dict[int, list[int]] = attrs.field(factory=dict)
    away: set[int] = attrs.field(factory=set)
    begun: dict[int, int] = attrs.field(factory=dict)
    sent: int = 0

    @classmethod
    def of(cls, costs: list[int], calls: Sequence[Hashable] | None = None, prefixes: Prefixes | None = None) -> Ledger:
        """Return a ledger in which every request waits; by default each is a call of its own."""
        waiting = list(range(len(costs)))[::-1]
        return cls(costs, calls or range(len(costs)), [None] * len(costs), waiting, prefixes)

    @property
    def done(self) -> bool:
        """Whether every request is answered, nothing may follow, and no replica has outstanding work."""
        return not self.waiting and not self.away and not any(self.flying.values())

    @property
    def answered(self) -> int:
        """The number of answered requests."""
        return sum(answer is not None for answer in self.answers) - len(self.away)

    def outstanding(self, replica: int) -> int:
        """Return the number of tokens that a replica may still have to compute."""
        return sum(sending.tokens for sending in self.flying.get(replica, {}).values())

    def route(self, rooms: Sequence[Room]) -> list[Sending]:
        """Assign waiting requests to the replica that would have the fewest outstanding tokens, while one has room."""
        if not self.waiting:
            return []
        tokens = {room.replica: self.outstanding(room.replica) for room in rooms}
        sent = []
        while self.waiting:
            free = [room.replica for room in rooms if len(self.flying.get(room.replica, {})) < room.calls]
            if not free:
                break
            together, slow = self._next_call(), self.overdue.get(self.waiting[-1], ())
            costs = {replica: sum(self._cost(ordinal, replica) for ordinal in together) for replica in free}
            replica = min(free, key=lambda replica: (replica in slow, tokens[replica] + costs[replica], replica))
            sent.append(self._send(replica, together, costs[replica]))
            tokens[replica] += costs[replica]
        return sent

    def _next_call(self) -> tuple[int, ...]:
        """Return the waiting requests that are sent next, all of one call."""
        call = self.calls[self.waiting[-1]]
        return tuple(itertools.takewhile(lambda ordinal: self.calls[ordinal] == call, reversed(self.waiting)))

    def _cost(self, ordinal: int, replica: int) -> int:
        """Return the tokens of a request that a replica has to compute."""
        return self.costs[ordinal] - (self.prefixes.of(ordinal, replica) if self.prefixes else 0)

    def _send(self, replica: int, together: tuple[int, ...], tokens: int) -> Sending:
        del self.waiting[-len(together) :]
        sending = Sending(self.sent, replica, together, tokens)
        self.sent += 1
        self.flying.setdefault(replica, {})[sending.number] = sending
        for ordinal in together:
            if self.prefixes:
                self.prefixes.sent(ordinal, replica)
        return sending

    def take(self, sending: Sending, answers: Sequence[Answer | Failure | Overdue]) -> list[int]:
        """Record the answers of a replica, except for requests that already have an answer, and return whose they are.

        A request that is overdue waits again, for another replica if there is one; at the last of `TRIES`, it fails.
        """
        late = self.flying.get(sending.replica, {}).pop(sending.number, None) is None
        open_ = [ordinal for ordinal in sending.ordinals if self._is_open(ordinal, sending.number)]
        for ordinal, answer in zip(sending.ordinals, answers, strict=True):
            if ordinal not in open_:
                continue
            if not isinstance(answer, Overdue):
                self.answers[ordinal] = answer
                if self.prefixes and not late and isinstance(answer, Answer):
                    self.prefixes.answered(ordinal, sending.replica, len(answer.tokens))
            elif not late:
                self._be_overdue(ordinal, sending.replica, answer)
        if late:  # from a replica that was given up, so that its requests may be waiting again
            self._wait([ordinal for ordinal in self.waiting if self.answers[ordinal] is None])
        return [ordinal for ordinal in open_ if self.answers[ordinal] is not None]

    def _is_open(self, ordinal: int, sending: int) -> bool:
        return self.answers[ordinal] is None and sending >= self.begun.get(ordinal, 0)

    def leave(self, ordinal: int) -> Answer | Failure | None:
        """Return the answer of a request that another one may follow; it is away until `go_on`."""
        self.away.add(ordinal)
        return self.answers[ordinal]

    def go_on(self, ordinal: int, cost: int | None, prompt: int = 0) -> None:
        """End the absence of a request: another one waits in its place, with this cost and this much of it its prompt,
        or none does.

        >>> ledger = Ledger.of([10])
        >>> [first] = ledger.route([Room(0, calls=1)])
        >>> ledger.take(first, [Answer([5], [-1.0])]), ledger.leave(0).tokens, ledger.done
        ([0], [5], False)
        >>> ledger.go_on(0, cost=12)
        >>> [second] = ledger.route([Room(0, calls=1)])
        >>> ledger.take(first, [Answer([6], [-1.0])]), ledger.take(second, [Answer([7], [-1.0])]), ledger.done
        ([], [0], True)
        """
        self.away.discard(ordinal)
        if cost is not None:
            self.costs[ordinal], self.answers[ordinal], self.begun[ordinal] = cost, None, self.sent
            self.overdue.pop(ordinal, None)
            if self.prefixes:
                self.prefixes.go_on(ordinal, prompt)
            self._wait([*self.waiting, ordinal])

    def _be_overdue(self, ordinal: int, replica: int, answer: Overdue) -> None:
        asked = self.overdue.setdefault(ordinal, [])
        asked.append(replica)
        if len(asked) < TRIES:
            self._wait([*self.waiting, ordinal])
        else:
            self.answers[ordinal] = Failure(f"{answer.reason}, asked of replicas {' and '.join(map(str, asked))}")

    def lose(self, replica: int) -> None:
        """Return all requests of a replica to the waiting ones."""
        if self.prefixes:
            self.prefixes.lose(replica)
        lost = [ordinal for sending in self.flying.pop(replica, {}).values() for ordinal in sending.ordinals]
        self._wait([*self.waiting, *(ordinal for ordinal in lost if self.answers[ordinal] is None)])

    def _wait(self, ordinals: list[int]) -> None:
        if ordinals != self.waiting:
            self.waiting = sorted(ordinals, reverse=True)
