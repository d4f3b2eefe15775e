"""Replicas that somebody else has started."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import attrs

from dovetail.errors import ConfigError, RunError
from dovetail_rollout.hosted.http import JsonClient
from dovetail_rollout.kinds import Program


@attrs.frozen(kw_only=True)
class Urls:
    """Servers at given addresses, as a scheduler such as Slurm or Kubernetes has started them.

    They must see the folder `rollout.NAME.handover` under the same path, and only one run may use them. A server that
    is lost is asked for again as often as `rollout.NAME.restarts` says: whoever started it may have restarted it.

    Args:
        urls: one for each replica, such as `('http://node1:8000', 'http://node2:8000')`.
    """

    urls: tuple[str, ...] = ()

    def __attrs_post_init__(self) -> None:
        twice = sorted({url for url in self.urls if self.urls.count(url) > 1})
        if twice:
            raise ConfigError(f"launcher.urls.urls names {twice[0]} twice: every replica needs an address of its own")

    def count(self, asked: int) -> int:
        """Return the number of addresses; a config need not repeat it."""
        if not self.urls:
            raise ConfigError("launcher 'urls' needs launcher.urls.urls, such as ('http://node1:8000',)")
        if asked not in (1, len(self.urls)):
            raise ConfigError(f"replicas = {asked}, but launcher.urls.urls has {len(self.urls)}; leave replicas out")
        return len(self.urls)

    def check(self) -> None:
        """Refuse a malformed address."""
        for url in self.urls:
            JsonClient(url, "")

    def open(self, replicas: int) -> Urls:
        """Return itself: there is nothing to reserve."""
        return self

    def place(self, number: int) -> Elsewhere:
        """Return the address of a replica.

        Raises:
            RunError: if it has none.
        """
        if number >= len(self.urls):
            raise RunError(f"launcher.urls.urls has {len(self.urls)} addresses, none for replica {number}")
        return Elsewhere(self.urls[number])

    def close(self) -> None:
        """Do nothing: the servers are somebody else's."""


@attrs.frozen
class Elsewhere:
    """A server that is there already; it is a place and what runs in it at once."""

    url: str
    ours: bool = False

    def run(self, program: Program, folder: Path) -> Elsewhere:
        """Start nothing."""
        return self

    def see(self, folder: Path) -> Path:
        """Return the same path."""
        return folder

    def wait_for(self, ready: Callable[[], bool], seconds: float) -> None:
        """Do not wait: whether it answers, its first question shows."""

    def epitaph(self) -> str:
        """Return nothing: its log is where it was started."""
        return ""

    def close(self) -> None:
        """Leave it running."""
