"""Records which replica has which request of a batch, and the answers; it does not use threads or clocks."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final

import attrs

from dovetail_rollout.hosted.host import Answer, Failure, Overdue

TRIES: Final = 2
"""Replicas that are asked for a completion that does not come in time."""


@attrs.frozen
class Room:
    """The capacity of a replica: so many concurrent calls."""

    replica: int
    calls: int


@attrs.frozen
class Sending:
    """Some requests, by their positions in the batch, that are sent to a replica."""

    number: int
    replica: int
    ordinals: tuple[int, ...]


@attrs.define(eq=False)
class Ledger:
    """The requests of one batch, by their positions in it.

    Consecutive requests with the same call are sent together, and so lost together.

    A request is waiting, or with a replica, or answered. One that is answered may be away until it is known what
    follows it, and then wait again as another request. All of this follows from `answers` and `flying`; there are no
    separate counters that could be wrong. Only the first answer to a request counts: the request of a lost replica may
    be sent again, with the same seed, but never has two answers.

    Attributes:
        costs: the number of tokens of each request, its prompt's and those that it may sample.
        calls: the call that each request belongs to.
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
    """

    costs: list[int]
    calls: Sequence[Hashable]
    answers: list[Answer | Failure | None]
    waiting: list[int]
    flying: dict[int, dict[int, Sending]] = attrs.field(factory=dict)
    overdue: dict[int, list[int]] = attrs.field(factory=dict)
    away: set[int] = attrs.field(factory=set)
    begun: dict[int, int] = attrs.field(factory=dict)
    sent: int = 0

    @classmethod
    def of(cls, costs: list[int], calls: Sequence[Hashable] | None = None) -> Ledger:
        """Return a ledger in which every request waits; by default each is a call of its own."""
        return cls(costs, calls or range(len(costs)), [None] * len(costs), list(range(len(costs)))[::-1])

    @property
    def done(self) -> bool:
        """Whether every request is answered, nothing may follow, and no replica has outstanding work."""
        return not self.waiting and not self.away and not any(self.flying.values())

    @property
    def answered(self) -> int:
        """The number of answered requests."""
        return sum(answer is not None for answer in self.answers) - len(self.away)

    def outstanding(self, replica: int) -> int:
        """Return the number of tokens that a replica may still have to process."""
        flying = self.flying.get(replica, {}).values()
        return sum(self.costs[ordinal] for sending in flying for ordinal in sending.ordinals)

    def route(self, rooms: Sequence[Room]) -> list[Sending]:
        """Assign waiting requests to the replica with the fewest outstanding tokens, as long as one has room."""
        if not self.waiting:
            return []
        tokens = {room.replica: self.outstanding(room.replica) for room in rooms}
        sent = []
        while self.waiting:
            free = [room for room in rooms if len(self.flying.get(room.replica, {})) < room.calls]
            if not free:
                break
            slow = self.overdue.get(self.waiting[-1], ())
            room = min(free, key=lambda room: (room.replica in slow, tokens[room.replica], room.replica))
            sending = self._send(room)
            tokens[room.replica] += sum(self.costs[ordinal] for ordinal in sending.ordinals)
            sent.append(sending)
        return sent

    def _send(self, room: Room) -> Sending:
        together, call = [], self.calls[self.waiting[-1]]
        while self.waiting and self.calls[self.waiting[-1]] == call:
            together.append(self.waiting.pop())
        sending = Sending(self.sent, room.replica, tuple(together))
        self.sent += 1
        self.flying.setdefault(room.replica, {})[sending.number] = sending
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

    def go_on(self, ordinal: int, cost: int | None) -> None:
        """End the absence of a request: another one of this cost waits in its place, or none does.

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
        lost = [ordinal for sending in self.flying.pop(replica, {}).values() for ordinal in sending.ordinals]
        self._wait([*self.waiting, *(ordinal for ordinal in lost if self.answers[ordinal] is None)])

    def _wait(self, ordinals: list[int]) -> None:
        if ordinals != self.waiting:
            self.waiting = sorted(ordinals, reverse=True)
