"""One replica of a fleet: its state, and its restart after a loss."""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs

from dovetail.errors import DovetailError
from dovetail_rollout.hosted.host import HostLost, Replica
from dovetail_rollout.hosted.restarts import Restarts


class State(enum.Enum):
    """The states of a replica."""

    JOINING = "joining"
    LIVE = "live"
    LOST = "lost"
    GONE = "gone"


@attrs.define(kw_only=True, eq=False)
class Member:
    """A replica, which gets requests only while it is live and has confirmed the newest weights.

    Attributes:
        number: the number of the replica, from 0.
        host: the host that serves.
        wanted: returns the folder of the newest weights; None once the fleet is closed.
        changed: called after every change of state, from any thread.
        tell: called with the text of each warning, from any thread.
        restarts: how often it may be restarted.
        confirmed: the folder of the weights that it has confirmed; None before.
        reads: the folder that it starts with or reads to catch up; None if it is not starting.
        losses: the reasons of its losses.
        leaves: whether it has been removed, and ends when it has answered its requests.
    """

    number: int
    host: Replica
    wanted: Callable[[], Path | None]
    changed: Callable[[], None]
    tell: Callable[[str], None]
    restarts: Restarts
    state: State = State.JOINING
    confirmed: Path | None = None
    reads: Path | None = None
    losses: list[str] = attrs.field(factory=list)
    leaves: bool = False
    lock: threading.Lock = attrs.field(factory=threading.Lock, repr=False)

    @property
    def routable(self) -> bool:
        """Whether it may get requests: it is live, and has confirmed the newest weights."""
        return self.state is State.LIVE and not self.leaves and self.confirmed == self.wanted()

    @property
    def life(self) -> int:
        """Which of its lives this is; what is said of an earlier one does not matter any more."""
        return len(self.losses)

    @property
    def record(self) -> dict[str, Any]:
        """What is said of it to people."""
        weights = None if self.confirmed is None else self.confirmed.name
        return {"state": self.state.value, "weights": weights, "losses": list(self.losses)}

    def start(self) -> None:
        """Begin to start it in a thread of its own; a replica whose first start fails is not tried again."""
        self._in_thread(lambda: self._join(first=True))

    def load(self, folder: Path) -> None:
        """Hand over new weights; a replica that does not accept them counts as lost."""
        life = self.life
        try:
            self.host.load(folder)
        except Exception as error:  # if nobody caught it, the fleet would wait for these weights forever
            words = _words(error)
            self.lose(life, lambda: words)
        else:
            self.confirmed = folder
        self.changed()

    def lose(self, life: int, why: Callable[[], str]) -> None:
        """Mark it as lost, once per start, and restart it in a thread of its own if this is still allowed."""
        with self.lock:
            if self.life != life or self.state is not State.LIVE:
                return
            self.state, self.confirmed = State.LOST, None
        self.host.cut()
        self._in_thread(lambda: self._join() if self._may_return(why()) else None)

    def stop(self) -> None:
        """End it; the fleet is closed, or does without it from now on."""
        with self.lock:  # not in the middle of a loss, after which it would be restarted
            self.state = State.GONE
        self.host.stop()

    def _in_thread(self, work: Callable[[], None]) -> None:
        threading.Thread(target=work, name=f"replica-{self.number}", daemon=True).start()

    def _join(self, *, first: bool = False) -> None:
        """Start it with the newest weights until that succeeds or may not be tried again."""
        while (folder := self._begun()) is not None:
            try:
                self.host.start(folder)
                if self._confirm(folder):
                    return
            except Exception as error:  # if nobody caught it, the replica would be joining forever
                if not (self.reads or folder).exists():  # it was removed just before it was read
                    self.host.stop()
                elif not self._may_return(_words(error), first=first):
                    return
            finally:
                self.reads = None
        self.host.stop()

    def _begun(self) -> Path | None:
        with self.lock:
            if self.state is State.GONE:
                return None
            self.state, self.reads = State.JOINING, self.wanted()
            return self.reads

    def _confirm(self, folder: Path) -> bool:
        """Hand over what is newer by now, and be live; tell whether the fleet still wants it."""
        while True:
            with self.lock:
                newest = self.wanted()
                if newest is None or self.state is State.GONE:
                    return False
                if newest == folder:
                    self.confirmed, self.state = folder, State.LIVE
                    break
            self.reads = newest
            self.host.load(newest)
            folder = newest
        self.changed()
        return True

    def _may_return(self, words: str, *, first: bool = False) -> bool:
        """Record a loss; return whether the replica may be restarted."""
        self.host.stop()
        with self.lock:
            closed = self.state is State.GONE or self.wanted() is None
            self.losses.append(words)
            again = not first and not closed and self.restarts.take()
            self.state = State.JOINING if again else State.GONE
        if not closed:
            self.tell(f"replica {self.number} is {'restarted' if again else 'lost'}: {words}")
        self.changed()
        return again


def _words(error: Exception) -> str:
    """Say what was raised; errors that are told to users say it themselves."""
    return str(error) if isinstance(error, (DovetailError, HostLost)) else f"{type(error).__name__}: {error}"
