"""A host that consists of replicas, which share the requests of a batch and take over those of a lost replica."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate, pairwise
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final

import attrs

import dovetail
from dovetail.config.settings import Sampling
from dovetail.errors import ConfigError, RunError
from dovetail.progress import SAMPLING, so_far
from dovetail_rollout.hosted.busy import Busy
from dovetail_rollout.hosted.host import Answer, Ends, Failure, HostLost, Overdue, Replica, Request, Then
from dovetail_rollout.hosted.ledger import Ledger, Room, Sending
from dovetail_rollout.hosted.member import Member, State
from dovetail_rollout.hosted.prefixes import Prefixes
from dovetail_rollout.hosted.restarts import Restarts
from dovetail_rollout.hosted.roster import Roster
from dovetail_rollout.kinds import Launcher, Place, Places

TELL_SECONDS: Final = 2.0
"""Seconds between two reports of the number of finished completions."""
HEALTH_SECONDS: Final = 10.0
"""Seconds of silence after which the health of a replica with outstanding work is checked."""

Outcome = Sequence[Answer | Failure | Overdue] | Exception


def chosen_launcher(given: Any) -> Launcher:
    """Return the given launcher or, outside a config, the launcher of that name with its defaults."""
    return dovetail.get("launcher", given).bind() if isinstance(given, str) else given  # pyright: ignore[reportReturnType]


def check_fleet(name: str, launcher: Any, replicas: int, floor: int) -> None:
    """Refuse a floor above the number of replicas.

    Raises:
        ConfigError: naming both numbers.
    """
    count = chosen_launcher(launcher).count(replicas)
    if floor > count:
        raise ConfigError(f"rollout.{name}.floor = {floor}, but there are {count} replicas; it can be {count} at most")


@attrs.define(kw_only=True, eq=False)
class Fleet:
    """A `Host` of replicas. A batch is complete when every request has one answer.

    A request goes to the replica that would have the fewest outstanding tokens among the live ones that have confirmed
    the newest weights; what it has kept of the prompt in its prefix cache does not count. If a replica is lost, its
    requests go to the others with the same seeds, and it is restarted, in a place chosen by its launcher, while the
    others continue. Only the caller's thread assigns requests (`Ledger`); the other threads only wait for answers.

    Attributes:
        name: the component's name, for messages.
        launcher: determines where the replicas run.
        replica: returns the host of a replica, given its place.
        count: number of replicas.
        restarts: how often within an hour each replica may be restarted.
        floor: the least number of replicas that must be left, including those being restarted.
        call: returns which call a request belongs to, for replicas that complete several in one; None for those that
            take requests one by one, and keep the prompts that they have computed.
    """

    name: str
    launcher: Launcher
    replica: Callable[[Place], Replica]
    count: int
    restarts: int
    floor: int
    call: Callable[[Request], Hashable] | None = None
    folder: Path | None = None
    members: dict[int, Member] = attrs.field(factory=dict)
    places: Places | None = None
    roster: Roster | None = None
    mustered: float = 0.0
    refused: set[int] = attrs.field(factory=set)
    news: SimpleQueue[str] = attrs.field(factory=SimpleQueue, repr=False)
    outcomes: SimpleQueue[Callable[[], None] | None] = attrs.field(factory=SimpleQueue, repr=False)
    condition: threading.Condition = attrs.field(factory=threading.Condition, repr=False)

    @property
    def reading(self) -> set[Path]:
        """The folders of replicas that are starting, however many updates that takes."""
        return {member.reads for member in list(self.members.values()) if member.reads is not None}

    def start(self, folder: Path) -> None:
        """Start all replicas, and wait for each.

        Raises:
            RunError: if fewer than `floor` have started.
        """
        self.folder = folder
        self.places = self.launcher.open(self.count)
        self.roster = Roster.of_run()
        wanted = self.roster.wanted() if self.roster else None
        for number in range(self.count) if wanted is None else wanted:
            self.add(number)
        self._wait(lambda: all(member.state is not State.JOINING for member in self.members.values()))
        self._muster()

    def add(self, number: int) -> Member:
        """Begin to start another replica, which gets requests as soon as it has the newest weights."""
        assert self.places is not None, "it is started"
        self.members[number] = member = Member(
            number=number,
            host=self.replica(self.places.place(number)),
            wanted=lambda: self.folder,
            changed=self._changed,
            tell=self.news.put,
            restarts=Restarts(self.restarts),
        )
        member.start()
        return member

    def complete(self, requests: Sequence[Request], sampling: Sampling, ends: Ends) -> list[Answer | Failure]:
        """Complete each prompt on some replica."""
        return self._complete(requests, sampling, ends, None)

    def converse(self, requests: Sequence[Request], sampling: Sampling, ends: Ends, then: Then) -> None:
        """Complete each prompt, and what follows, on some replica; what `then` takes no replica waits for."""
        self._complete(requests, sampling, ends, then)

    def _complete(
        self, requests: Sequence[Request], sampling: Sampling, ends: Ends, then: Then | None
    ) -> list[Answer | Failure]:
        self._muster()
        for room in self._rooms()[:1]:
            self.members[room.replica].host.share([], sampling, ends)  # refuses settings that no replica takes
        asked = list(requests)
        ledger = self._ledger(requests, sampling)
        self.outcomes = outcomes = SimpleQueue()
        pool = ThreadPoolExecutor(len(requests), thread_name_prefix=self.name)
        heard, busy = dict.fromkeys(self.members, time.monotonic()), Busy()

        def ask(sending: Sending, mine: Sequence[Request], member: Member, life: int) -> None:
            try:
                with busy.call(f"replica {sending.replica}"):
                    outcome = member.host.share(mine, sampling, ends)
            except Exception as error:
                outcome = error
            outcomes.put(lambda: take(sending, life, outcome))

        def take(sending: Sending, life: int, outcome: Outcome) -> None:
            for place in self._take(ledger, heard, sending, life, outcome):
                if then is not None and (answer := ledger.leave(place)) is not None:
                    pool.submit(follow, then, place, answer)

        def follow(then: Then, place: int, answer: Answer | Failure) -> None:
            try:
                found = then(place, answer)
            except Exception as error:
                found = error
            outcomes.put(lambda: go_on(place, found))

        def go_on(place: int, found: Request | Exception | None) -> None:
            if isinstance(found, Exception):
                raise found
            asked[place] = found or asked[place]
            ledger.go_on(place, found and _cost(found, sampling), len(asked[place].prompt))

        try:
            while not ledger.done:
                for sending in ledger.route(self._rooms()):
                    member = self.members[sending.replica]
                    heard.setdefault(sending.replica, time.monotonic())
                    pool.submit(ask, sending, [asked[place] for place in sending.ordinals], member, member.life)
                self._next(ledger, heard, ends)
        except BaseException:
            self._cut()
            pool.shutdown(cancel_futures=True)
            for member in self.members.values():
                member.host.reconnect()  # those that are well answer the next call
            raise
        finally:
            pool.shutdown(cancel_futures=True)
        busy.note("sampling")
        return [answer for answer in ledger.answers if answer is not None]

    def _ledger(self, requests: Sequence[Request], sampling: Sampling) -> Ledger:
        costs = [_cost(request, sampling) for request in requests]
        if self.call is not None:  # such replicas compute a call as a whole, and keep nothing of it
            return Ledger.of(costs, [self.call(request) for request in requests])
        groups = [0, *accumulate(one.prompt != other.prompt for one, other in pairwise(requests))]
        return Ledger.of(costs, prefixes=Prefixes([len(request.prompt) for request in requests], groups))

    def _rooms(self) -> list[Room]:
        members = [member for _, member in sorted(self.members.items()) if member.routable]
        return [Room(member.number, member.host.calls) for member in members]

    def _next(self, ledger: Ledger, heard: dict[int, float], ends: Ends) -> None:
        """Wait for the next event and process it; check the health of replicas that have been silent for long."""
        try:
            event = self.outcomes.get(timeout=ends.look(min(TELL_SECONDS, HEALTH_SECONDS)))
        except Empty:
            event = None
        if ends.interrupts_now():
            for member in self.members.values():
                member.host.hang_up()
        self._check()
        if event is not None:
            event()
        now = time.monotonic()
        if now - self.mustered >= TELL_SECONDS:
            so_far(SAMPLING, ledger.answered, len(ledger.costs))
            self._muster(ledger)
        for replica, since in heard.items():
            if now - since >= HEALTH_SECONDS and ledger.flying.get(replica):
                heard[replica] = now
                _ask_health(self.members[replica])

    def _take(
        self, ledger: Ledger, heard: dict[int, float], sending: Sending, life: int, outcome: Outcome
    ) -> list[int]:
        """Take what became of a sending, and return the requests that it has answered."""
        member = self.members.get(sending.replica)  # None if it was lost, and is not wanted any more
        if isinstance(outcome, Sequence):
            heard[sending.replica] = time.monotonic()
            return ledger.take(sending, outcome)
        if isinstance(outcome, HostLost):
            if member is not None and member.life == life and member.state is State.LIVE:
                words = str(outcome)
                member.lose(life, lambda: member.host.epitaph(words))
            if sending.number in ledger.flying.get(sending.replica, {}):
                ledger.lose(sending.replica)
            return []
        raise outcome

    def load(self, folder: Path) -> None:
        """Make all live replicas read the weights; a replica that restarts later reads them before it gets requests."""
        with self.condition:
            self.folder = folder
        live = [member for member in self.members.values() if member.state is State.LIVE]
        busy = Busy()

        def load(member: Member) -> None:
            with busy.call(f"replica {member.number}"):
                member.load(folder)

        with ThreadPoolExecutor(max(1, len(live)), thread_name_prefix=self.name) as pool:
            loading = {pool.submit(load, member): member for member in live}
            asked = time.monotonic()
            while waiting := [member for future, member in loading.items() if not future.done()]:
                with self.condition:
                    self.condition.wait(0.05)
                if time.monotonic() - asked >= HEALTH_SECONDS:
                    asked = time.monotonic()
                    for member in waiting:
                        _ask_health(member)
        busy.note("loading")
        self._wait(lambda: any(member.routable for member in self.members.values()))
        self._muster()

    def _muster(self, ledger: Ledger | None = None) -> None:
        """Begin to start added replicas, end removed ones without work, and report the state of all.

        A replica that is removed during a batch ends after it has answered its requests.
        """
        self.mustered = time.monotonic()
        if self.roster is None:
            return
        wanted = self.roster.wanted()
        if wanted is not None:
            for number in sorted(set(wanted) - set(self.members) - self.refused):
                self._add_if_possible(number)
            for number in set(self.members) - set(wanted):
                member = self.members[number]
                member.leaves = True
                if ledger is None or not ledger.flying.get(number):
                    del self.members[number]
                    member.stop()
        self.roster.say({"floor": self.floor, "replicas": {n: member.record for n, member in self.members.items()}})

    def stop(self) -> None:
        """End all replicas."""
        self.folder = None
        if self.members:
            with ThreadPoolExecutor(len(self.members)) as pool:
                list(pool.map(Member.stop, self.members.values()))
        self.members.clear()
        if self.places is not None:
            self.places.close()
            self.places = None

    def _cut(self) -> None:
        for member in self.members.values():
            member.host.cut()

    def _changed(self) -> None:
        self.outcomes.put(None)
        with self.condition:
            self.condition.notify_all()

    def _add_if_possible(self, number: int) -> None:
        try:
            self.add(number)
        except RunError as error:
            self.refused.add(number)
            self.news.put(f"replica {number} cannot be added: {error}")

    def _wait(self, ready: Callable[[], bool]) -> None:
        """Wait until a condition holds, as long as enough replicas are left."""
        while not ready():
            self._check()
            with self.condition:
                self.condition.wait(0.05)
        self._check()

    def _check(self) -> None:
        """Warn of losses, and end the run if too few replicas are left.

        Raises:
            RunError: with the reason for each loss.
        """
        while not self.news.empty():
            warnings.warn(f"rollout engine '{self.name}': {self.news.get()}", RuntimeWarning, stacklevel=6)
        members = self.members.values()
        gone = [member for member in members if member.state is State.GONE]
        if len(members) - len(gone) < self.floor:
            reasons = "; ".join(f"replica {member.number}: {member.losses[-1]}" for member in gone if member.losses)
            raise RunError(
                f"rollout engine '{self.name}' has {len(members) - len(gone)} of {len(members)} replicas left, and"
                f" rollout.{self.name}.floor = {self.floor}; {reasons}"
            )


def _cost(request: Request, sampling: Sampling) -> int:
    """Return the tokens of a request, its prompt's and those that it may sample."""
    return len(request.prompt) + request.most(sampling.max_tokens)


def _ask_health(member: Member) -> None:
    """Cut the connections to a replica that does not confirm its health in time, so that its requests count as lost."""

    def ask() -> None:
        if not member.host.healthy():
            member.host.cut()

    threading.Thread(target=ask, name=f"health-{member.number}", daemon=True).start()
