"""The record of a run in JSON lines: metrics, timings, samples, what each prompt of an evaluation came to.

`metrics.jsonl` holds nothing that depends on the clock, so that two runs of the same config and seed write the same
bytes, be they killed and resumed or not; wall-clock figures go to `timings.jsonl`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from dovetail.errors import RunError

FILES = ("metrics.jsonl", "timings.jsonl", "samples.jsonl", "eval.jsonl")


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

    def prompts(self, phase: str, step: int, columns: Mapping[str, Float[np.ndarray, "prompt"]]) -> None:
        """Append an evaluation: for each metric, whose mean is in `metrics.jsonl`, the values of all prompts in order.

        A prompt without a value has null; whole numbers, as most are, take one character.
        """
        values = {name: [_number(value) for value in column.tolist()] for name, column in columns.items()}
        self._append("eval.jsonl", [{"phase": phase, "step": step, **values}])

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


def read_records(path: Path, phase: str = "rl") -> list[dict[str, Any]]:
    """Read what a run has recorded of a phase, also while it goes on; a line that is being written is left for later.

    An absent file is empty, and a line that is no record is passed over.
    """
    try:
        text = path.read_text()
    except FileNotFoundError:
        return []
    records = []
    for line in text[: text.rfind("\n") + 1].splitlines():
        with suppress(ValueError):
            records.append(json.loads(line))
    return [record for record in records if isinstance(record, dict) and record.get("phase") == phase]


def _number(value: float) -> float | None:
    if math.isnan(value):
        return None
    return int(value) if value.is_integer() else value
