"""The record of a run in JSON lines: metrics, timings, samples.

`metrics.jsonl` holds nothing that depends on the clock, so that two runs of the same config and seed write the same
bytes, be they killed and resumed or not; wall-clock figures go to `timings.jsonl`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dovetail.errors import RunError

FILES = ("metrics.jsonl", "timings.jsonl", "samples.jsonl")


class Journal:
    """Appends records, and goes back to where a checkpoint was taken."""

    def __init__(self, folder: Path) -> None:
        """Open (and make) the files in `folder`."""
        self._files = {name: (folder / name).open("ab") for name in FILES}

    def metrics(self, phase: str, step: int, values: Mapping[str, float]) -> None:
        """Append one step's metrics."""
        self._append("metrics.jsonl", [{"phase": phase, "step": step, **values}])

    def timings(self, phase: str, step: int, values: Mapping[str, float]) -> None:
        """Append one step's wall-clock figures."""
        self._append("timings.jsonl", [{"phase": phase, "step": step, **values}])

    def samples(self, phase: str, step: int, records: Iterable[Mapping[str, Any]]) -> None:
        """Append sampled completions."""
        self._append("samples.jsonl", [{"phase": phase, "step": step, **record} for record in records])

    def position(self) -> dict[str, int]:
        """Return the sizes of the files in bytes, to be kept with a checkpoint."""
        return {name: file.tell() for name, file in self._files.items()}

    def rewind(self, position: Mapping[str, int]) -> None:
        """Cut what was written after a checkpoint."""
        for name, file in self._files.items():
            file.truncate(position.get(name, 0))
            file.seek(0, 2)

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()

    def _append(self, name: str, records: Iterable[Mapping[str, Any]]) -> None:
        file = self._files[name]
        try:
            for record in records:
                file.write(json.dumps(record, ensure_ascii=False).encode() + b"\n")
            file.flush()
        except OSError as error:
            raise RunError(
                f"'{file.name}' cannot be written: {error.strerror or error}; checkpoints are kept"
            ) from error
