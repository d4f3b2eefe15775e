"""Replicas as processes of this machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import attrs

from dovetail_rollout.hosted.process import GuardedProcess, free_port
from dovetail_rollout.kinds import Program


@attrs.frozen(kw_only=True)
class Local:
    """Child processes, which end with the run however it ends.

    Args:
        devices: for each replica the GPUs that it sees, as `CUDA_VISIBLE_DEVICES` spells them: `('0,1', '2,3')` gives
            two replicas two each. With fewer entries than replicas they are given out in turn. Empty: all see all.
    """

    devices: tuple[str, ...] = ()

    def count(self, asked: int) -> int:
        """Return as many as are asked for."""
        return asked

    def check(self) -> None:
        """Do nothing: it needs nothing that could be missing."""

    def open(self, replicas: int) -> Local:
        """Return itself: there is nothing to reserve."""
        return self

    def place(self, number: int) -> Here:
        """Return this machine, and the GPUs of the replica."""
        return Here({"CUDA_VISIBLE_DEVICES": self.devices[number % len(self.devices)]} if self.devices else {})

    def close(self) -> None:
        """Do nothing."""


@attrs.frozen
class Here:
    """A place on this machine, where servers listen on the loopback interface only.

    Attributes:
        variables: what is added to the environment of the server.
    """

    variables: Mapping[str, str] = attrs.field(factory=dict)

    def run(self, program: Program, folder: Path) -> GuardedProcess:
        """Start a process."""
        port = free_port()
        environment = {**program.environment(), **self.variables}
        process = GuardedProcess(program.command(folder, "127.0.0.1", port), environment, program.name)
        process.url = f"http://127.0.0.1:{port}"
        return process

    def see(self, folder: Path) -> Path:
        """Return the same path."""
        return folder
