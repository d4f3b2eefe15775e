"""The kinds that watch a run, or run many."""

from __future__ import annotations

from typing import Final

from dovetail.kinds.kind import Kind

SINK: Final = Kind(
    name="sink",
    summary="where metrics go",
    protocol="dovetail.protocols:SinkMaker",
    scaffold="class",
)

EXECUTOR: Final = Kind(
    name="executor",
    summary="where trials and workers run",
    protocol="dovetail.protocols:Executor",
    scaffold="class",
)

EARLY_STOPPING: Final = Kind(
    name="early_stopping",
    summary="learning curves of a sweep's trials -> which of them to stop",
)

KINDS: Final = (SINK, EXECUTOR, EARLY_STOPPING)
