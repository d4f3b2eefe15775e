"""The kind of components that observe a run."""

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
    """An open destination for metrics."""

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write the metrics of one record: a step, or an evaluation (`eval/...`) under the number of the step before.

        The steps of the warm start, whose records have metrics `sft/...`, count from 1, as those of RL do. A run that
        is killed and goes on writes again what came after its checkpoint, or all if it had none yet. It is called in
        the thread of the run; what is not finite is in the metrics as it is.
        """
        ...

    def close(self) -> None:
        """Write everything that is still buffered, and close."""
        ...


class SinkMaker(Protocol):
    """Kind `sink`: opens a sink for a run."""

    def open(self, folder: Path, total_steps: int, start_step: int) -> Sink:
        """Return an open sink.

        What the run has recorded up to the checkpoint from which it goes on, and nothing after that, is in
        `metrics.jsonl` and `timings.jsonl` of its folder at this moment, a line for each record in both. A sink that
        writes that anew keeps what it should, whatever was cut off.

        Args:
            folder: the run folder.
            total_steps: the number of RL steps that the config asks for.
            start_step: the number of RL steps already done; 0 unless the run is resumed, or if it goes on within the
                warm start.
        """
        ...
