"""The kind that this package opens: where rewards and tools run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from dovetail.kinds import Kind
from dovetail.registry import Component
from dovetail_kit.workers import Workers

POOL: Final = Kind(
    name="pool",
    summary="where rewards and tools run, if not in the trainer's process",
    protocol="dovetail_executor.kinds:Pool",
    scaffold="class",
)

KINDS: Final = (POOL,)


class Pool(Protocol):
    """Kind `pool`: workers that call a function, on this machine or on others."""

    @property
    def seconds(self) -> float:
        """The time limit of a call."""
        ...

    def open(self, function: Callable[..., Any], what: str) -> Workers:
        """Return workers that call this function, the same ones for the same function; they start when needed.

        Raises:
            ConfigError: if the function cannot be sent to another process, or a library is missing; `what` says in the
                message what was to run there.
        """
        ...

    def around(self, component: Component, built: Callable[..., Any]) -> Callable[..., Any]:
        """Return a reward with the same signature that runs here; see `dovetail_executor.pooled`."""
        ...
