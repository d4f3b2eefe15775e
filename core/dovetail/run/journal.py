"""The record of a run in JSON lines: metrics, timings, samples, what each prompt of an evaluation came to.

`metrics.jsonl` holds nothing that depends on the clock, so that two runs of the same config and seed write the same
bytes, be they killed and resumed or not; wall-clock figures go to `timings.jsonl`.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from jaxtyping import Float

from dovetail.errors import RunError
from dovetail.run.blocks import block

FILES = ("metrics.jsonl", "timings.jsonl", "samples.jsonl", "eval.jsonl")
MESSAGES = "messages.bin"
"""What the trainer has taken from the sampler, where it is kept (`run.keep_messages`); see `dovetail.run.blocks`."""


class Journal:
    """Appends records, and goes back to where a checkpoint was taken."""

    def __init__(self, folder: Path, *more: str) -> None:
        """Open (and make) the files in `folder`, and more."""
        self._files = {name: (folder / name).open("ab") for name in (*FILES, *more)}

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

    def message(self, head: Mapping[str, Any], body: bytes) -> None:
        """Append what the trainer has taken from the sampler, where that is kept, before anything is learnt from it."""
        if MESSAGES in self._files:
            self._write(self._files[MESSAGES], [block(head, body)])

    def position(self) -> dict[str, int]:
        """Return the sizes of the files in bytes, to be kept with a checkpoint, once all of it is on the disk."""
        for file in self._files.values():
            try:
                # after a power failure, a checkpoint without the records before it could not be resumed
                os.fsync(file.fileno())
            except OSError as error:
                raise _cannot_be_written(file, error) from error
        return {name: file.tell() for name, file in self._files.items()}

    def rewind(self, position: Mapping[str, int]) -> None:
        """Cut what was written after a checkpoint.

        Raises:
            RunError: if a file is shorter than it was then, before anything is cut.
        """
        for name, file in self._files.items():
            there, then = file.seek(0, os.SEEK_END), position.get(name, 0)
            if there < then:
                raise RunError(
                    f"'{file.name}' has {there} bytes, and at the checkpoint that the run would go on from it had"
                    f" {then}: records are gone, which no step writes again. Put them back, or train in another folder"
                )
        for name, file in self._files.items():
            file.truncate(position.get(name, 0))
            file.seek(0, os.SEEK_END)

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()

    def _append(self, name: str, records: Iterable[Mapping[str, Any]]) -> None:
        self._write(self._files[name], (json.dumps(record, ensure_ascii=False).encode() + b"\n" for record in records))

    @staticmethod
    def _write(file: IO[bytes], pieces: Iterable[bytes]) -> None:
        try:
            for piece in pieces:
                file.write(piece)
            file.flush()
        except OSError as error:
            raise _cannot_be_written(file, error) from error


class Silent(Journal):
    """The journal of a process that writes no records."""

    def __init__(self) -> None:
        self._files = {}

    def _append(self, name: str, records: Iterable[Mapping[str, Any]]) -> None:
        """Write nothing."""


def _cannot_be_written(file: IO[bytes], error: OSError) -> RunError:
    return RunError(f"'{file.name}' cannot be written: {error.strerror or error}; checkpoints are kept")


def _number(value: float) -> float | None:
    if math.isnan(value):
        return None
    return int(value) if value.is_integer() else value
