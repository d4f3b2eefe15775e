"""The kind that watches a run."""

from __future__ import annotations

from typing import Final

from dovetail.kinds.kind import Kind

SINK: Final = Kind(
    name="sink",
    summary="where metrics go",
    protocol="dovetail.protocols:SinkMaker",
    scaffold="class",
)

KINDS: Final = (SINK,)
