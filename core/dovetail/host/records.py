"""Records with an entry for each completion or prompt, such as arrays of rows: concatenated, and selected from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

import attrs
import numpy as np
from jaxtyping import Int

R = TypeVar("R")

OF_PROMPTS: Final = {"of": "prompts"}
"""Metadata of a field with an entry for each prompt; without metadata, there is one for each completion."""

OF_ALL: Final = {"of": "all"}
"""Metadata of a field that is the same in all records."""


def joined(parts: Sequence[R], sizes: Sequence[int]) -> R:
    """Concatenate records with these numbers of completions; a metric that a record does not have is NaN there."""
    return _joined(parts, [np.full(size, np.nan) for size in sizes])


def _joined(parts: Sequence[Any], missing: Sequence[np.ndarray]) -> Any:
    first = parts[0]
    if first is None:
        return None
    if attrs.has(type(first)):
        columns = {name: [getattr(part, name) for part in parts] for name, of in _fields(first) if of != "all"}
        return attrs.evolve(first, **{name: _joined(column, missing) for name, column in columns.items()})
    if isinstance(first, Mapping):
        names, each = sorted(set().union(*parts)), list(zip(parts, missing, strict=True))
        return {name: np.concatenate([part.get(name, nan) for part, nan in each]) for name in names}
    if isinstance(first, tuple):
        return tuple(entry for part in parts for entry in part)
    return np.concatenate(parts)


def selected(record: R, prompts: Int[np.ndarray, "chosen"], samples: int) -> R:
    """Return a record of some prompts, in this order, with their completions, `samples` of each."""
    rows = (np.asarray(prompts)[:, None] * samples + np.arange(samples)).reshape(-1)
    return _selected(record, {"prompts": prompts, "completions": rows}, "completions")


def _selected(value: Any, entries: Mapping[str, Any], of: str) -> Any:
    if value is None or of == "all":
        return value
    if attrs.has(type(value)):
        return attrs.evolve(
            value, **{name: _selected(getattr(value, name), entries, of) for name, of in _fields(value)}
        )
    if isinstance(value, Mapping):
        return {name: metric[entries[of]] for name, metric in value.items()}
    return tuple(value[entry] for entry in entries[of]) if isinstance(value, tuple) else value[entries[of]]


def _fields(record: Any) -> list[tuple[str, str]]:
    return [(field.name, field.metadata.get("of", "completions")) for field in attrs.fields(type(record))]
