"""Measure the time to import a plugin, which every command spends, in a fresh process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata

import attrs

from dovetail.registry.discovery import GROUP, HEAVY
from dovetail_kit.answers import taken

_MEASURE = """
import sys, time
import dovetail.registry
from dovetail_kit.answers import give
began = time.process_time()
__import__(sys.argv[1])
give([time.process_time() - began, sorted(set(sys.modules) & set(sys.argv[2:]))])
"""


@attrs.frozen
class ImportCost:
    """The cost of importing one entry point: seconds of processor time, and the heavy libraries that it imports."""

    module: str
    seconds: float
    heavy: tuple[str, ...]


def import_costs(distribution: metadata.Distribution) -> Iterator[ImportCost]:
    """Measure each module that a distribution announces; one that cannot be imported is left out."""
    for module in sorted({point.module for point in distribution.entry_points.select(group=GROUP)}):
        done = subprocess.run(
            [sys.executable, "-c", _MEASURE, module, *HEAVY],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
        if answer := taken(done.stdout):  # discovery has already said why an import fails
            seconds, heavy = answer
            yield ImportCost(module, seconds, tuple(heavy))
