"""The kind that watches a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Protocol

from dovetail.kinds.kind import Kind

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Sink", "SinkMaker"]

SINK: Final = Kind(
    name="sink",
    summary="where metrics go",
    protocol="dovetail.kinds.observers:SinkMaker",
    scaffold="class",
)

KINDS: Final = (SINK,)


class Sink(Protocol):
    """An open metrics sink."""

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Take one step's metrics."""
        ...

    def close(self) -> None:
        """Flush."""
        ...


class SinkMaker(Protocol):
    """Kind `sink`."""

    def open(self, folder: Path, total_steps: int, start_step: int) -> Sink:
        """Return a sink for a run folder; `start_step` RL steps are done already, which is 0
        but for a resumed run."""
        ...
