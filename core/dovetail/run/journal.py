"""The records of a run in JSON lines: metrics, timings, spans, samples, and the results of each evaluated prompt.

`metrics.jsonl` does not contain anything that depends on the clock, so that two runs with the same config and seed
write the same bytes, whether or not they are killed and resumed; wall-clock figures go to `timings.jsonl`, and what ran
when to `spans.jsonl`.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from jaxtyping import Float

from dovetail.config import Config
from dovetail.errors import RunError
from dovetail.run.blocks import block
from dovetail.run.files import json_bytes
from dovetail.spans import Span

CLOCKED = ("timings.jsonl", "spans.jsonl")
"""The files that differ between two runs with the same config and seed."""
FILES = ("metrics.jsonl", *CLOCKED, "samples.jsonl", "eval.jsonl")
MESSAGES = "messages.bin"
"""The file of messages from the sampler to the trainer, if a run keeps them (`run.keep_messages`); see
`dovetail.run.blocks`."""


def keeps_messages(config: Config) -> bool:
    """Return whether a run keeps what its trainer learns from; see `run.keep_messages`."""
    said = config.run.keep_messages
    return config.train.in_flight if said is None else said


class Journal:
    """Appends records, and can be cut back to the position of a checkpoint."""

    def __init__(self, folder: Path, *more: str) -> None:
        """Open the files in `folder`, and those named in `more`; missing files are created."""
        self._files = {name: (folder / name).open("ab") for name in (*FILES, *more)}

    def metrics(self, phase: str, step: int, values: Mapping[str, float]) -> None:
        """Append one step's metrics."""
        self._append("metrics.jsonl", [{"phase": phase, "step": step, **values}])

    def timings(self, phase: str, step: int, values: Mapping[str, float]) -> None:
        """Append one step's wall-clock figures."""
        self._append("timings.jsonl", [{"phase": phase, "step": step, **values}])

    def spans(self, phase: str, step: int, spans: Iterable[Span]) -> None:
        """Append what has ended since the last call; times are in seconds since 1970, to a tenth of a millisecond."""
        found = [[*span[:-2], round(span.began, 4), round(span.ended, 4)] for span in spans]
        self._append("spans.jsonl", [{"phase": phase, "step": step, "spans": found}])

    def samples(self, phase: str, step: int, records: Iterable[Mapping[str, Any]]) -> None:
        """Append sampled completions."""
        self._append("samples.jsonl", [{"phase": phase, "step": step, **record} for record in records])

    def prompts(self, phase: str, step: int, columns: Mapping[str, Float[np.ndarray, "prompt"]]) -> None:
        """Append an evaluation: the values of all prompts, in order, for each metric with a mean in `metrics.jsonl`.

        A missing value is null. Most values are small integers, which take one character.
        """
        values = {name: [_number(value) for value in column.tolist()] for name, column in columns.items()}
        self._append("eval.jsonl", [{"phase": phase, "step": step, **values}])

    @property
    def keeps_messages(self) -> bool:
        """Whether the file of messages is among those that are open."""
        return MESSAGES in self._files

    def message(self, head: Mapping[str, Any], body: bytes) -> None:
        """Append a message that the trainer has taken from the sampler, before it is used for learning."""
        self._write(self._files[MESSAGES], [block(head, body)])

    @property
    def position(self) -> dict[str, int]:
        """The sizes of the files in bytes, which are stored with a checkpoint."""
        return {name: file.tell() for name, file in self._files.items()}

    def sync(self) -> None:
        """Flush the files to disk."""
        for file in self._files.values():
            if not os.fstat(file.fileno()).st_nlink:
                raise RunError(f"'{file.name}' was removed while the run wrote to it; begin again in another folder")
            try:
                # after a power failure, a checkpoint could not be resumed without the records that precede it
                os.fsync(file.fileno())
            except OSError as error:
                raise _cannot_be_written(file, error) from error

    def rewind(self, position: Mapping[str, int]) -> None:
        """Cut the records that were written after a checkpoint.

        Raises:
            RunError: if a file is shorter than at the checkpoint; in this case nothing is cut.
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
        """Close the files; a disk that is full was an error when it was written to, and is none again."""
        for file in self._files.values():
            with contextlib.suppress(OSError):
                file.close()

    def _append(self, name: str, records: Iterable[Mapping[str, Any]]) -> None:
        self._write(self._files[name], (json_bytes(record) + b"\n" for record in records))

    @staticmethod
    def _write(file: IO[bytes], pieces: Iterable[bytes]) -> None:
        try:
            for piece in pieces:
                file.write(piece)
            file.flush()
        except OSError as error:
            raise _cannot_be_written(file, error) from error


class Silent(Journal):
    """The journal of a process that does not write records."""

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
