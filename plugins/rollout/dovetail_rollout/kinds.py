"""The kinds that this package opens: where the replicas of an engine run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

import attrs

from dovetail.kinds import Kind

LAUNCHER: Final = Kind(
    name="launcher",
    summary="where the replicas of a rollout engine run",
    protocol="dovetail_rollout.kinds:Launcher",
    scaffold="class",
)

KINDS: Final = (LAUNCHER,)


@attrs.frozen(kw_only=True)
class Program:
    """A server to be started where a launcher says; both functions are called there, and can be pickled.

    Attributes:
        name: for logs and messages.
        command: from the folder of a model, an address and a port to the words of a command.
        environment: the variables of its process.
    """

    name: str
    command: Callable[[Path, str, int], Sequence[str]]
    environment: Callable[[], Mapping[str, str]]


class Running(Protocol):
    """A server that was started, or was there."""

    @property
    def url(self) -> str:
        """Where it is asked."""
        ...

    @property
    def ours(self) -> bool:
        """Whether we have started it, so that it serves the folder that we named."""
        ...

    def wait_for(self, ready: Callable[[], bool], seconds: float) -> None:
        """Wait until `ready` returns true.

        Raises:
            RunError: if the server ends first or this takes longer; the message says where to look.
        """
        ...

    def epitaph(self) -> str:
        """Say how it ended, or that it still runs; empty if that is not known."""
        ...

    def close(self) -> None:
        """End what we have started; a second call does nothing."""
        ...


class Place(Protocol):
    """Where one replica runs."""

    def run(self, program: Program, folder: Path) -> Running:
        """Start a server with the model in a folder, in place of one before.

        Raises:
            RunError: if it cannot be started there.
        """
        ...

    def see(self, folder: Path) -> Path:
        """Return the path under which a folder of ours can be read there, having copied it if need be."""
        ...


class Places(Protocol):
    """An open launcher."""

    def place(self, number: int) -> Place:
        """Return the place of replica `number`, counted from 0."""
        ...

    def close(self) -> None:
        """Release what was reserved; the servers have been closed before."""
        ...


class Launcher(Protocol):
    """Kind `launcher`: where the replicas of an engine run."""

    def count(self, asked: int) -> int:
        """Return how many replicas there are where a config asks for so many.

        Raises:
            ConfigError: if there can be no such number.
        """
        ...

    def check(self) -> None:
        """Refuse now, before anything is loaded, if what it needs is not there.

        Raises:
            ConfigError: with what to install, or which setting to mend.
        """
        ...

    def open(self, replicas: int) -> Places:
        """Reserve what so many replicas need.

        Raises:
            RunError: if it is not there, saying what is missing.
        """
        ...
