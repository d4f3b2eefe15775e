"""A replica of a fleet: whatever its host raises, it is live, lost or gone, and nobody waits for it in vain."""

import threading
from pathlib import Path

import attrs
import pytest

from dovetail.errors import ConfigError
from dovetail_rollout.hosted.member import Member, State
from dovetail_rollout.hosted.restarts import Restarts


class Host:
    """A host that raises `error` when it is given weights."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.stopped = 0

    def start(self, folder):
        pass

    def load(self, folder):
        if self.error is not None:
            raise self.error

    def stop(self):
        self.stopped += 1

    def cut(self):
        pass


@attrs.define
class Fleet:
    """What a member asks of its fleet."""

    folder: Path
    told: list[str] = attrs.field(factory=list)
    changes: threading.Semaphore = attrs.field(factory=lambda: threading.Semaphore(0))

    def member(self, restarts: Restarts) -> Member:
        return Member(
            number=0,
            host=Host(),  # pyright: ignore[reportArgumentType]
            wanted=lambda: self.folder,
            changed=self.changes.release,
            tell=self.told.append,
            restarts=restarts,
        )

    def until(self, holds) -> None:
        while not holds():
            assert self.changes.acquire(timeout=60), "in vain"


@pytest.mark.parametrize("error", [ValueError("odd"), OSError("no such folder"), ConfigError("a DoRA adapter")])
def test_weights_that_cannot_be_loaded_for_any_reason_are_a_loss(tmp_path, error):
    fleet = Fleet(tmp_path / "version-0")
    member = fleet.member(Restarts(0))
    member.start()
    fleet.until(lambda: member.routable)
    member.host.error, fleet.folder = error, tmp_path / "version-1"
    member.load(fleet.folder)
    fleet.until(lambda: member.state is State.GONE)
    assert str(error) in fleet.told[0]


def test_a_replica_that_is_removed_while_its_loss_is_recorded_stays_removed(tmp_path):
    fleet, taken = Fleet(tmp_path), threading.Event()

    class Slow(Restarts):
        def take(self, now=None):
            stops.start()
            stops.join(0.2)  # it cannot end before this returns
            taken.set()
            return True

    member = fleet.member(Slow(1))
    stops = threading.Thread(target=member.stop)
    member.start()
    fleet.until(lambda: member.routable)
    member.lose(member.life, lambda: "it is gone")
    assert taken.wait(60)
    for thread in [stops, *(each for each in threading.enumerate() if each.name == "replica-0")]:
        thread.join(60)
    assert member.state is State.GONE
