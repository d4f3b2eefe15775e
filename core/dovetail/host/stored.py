"""Sampled groups as bytes and JSON values, so that a checkpoint can store those that later steps will use."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any, Final

import attrs
import numpy as np
from jaxtyping import UInt8

from dovetail.errors import DataError
from dovetail.host.completer import Completed
from dovetail.host.rewards import Scores
from dovetail.host.sampling import Sampled
from dovetail.protocols import Completions, Episodes

PARTS: Final[Mapping[str, type]] = {
    "completed": Completed,
    "completions": Completions,
    "episodes": Episodes,
    "scores": Scores,
}
"""The fields of `Sampled` and of its parts that consist of parts themselves."""


@attrs.frozen(kw_only=True)
class Stored:
    """Sampled groups: the JSON values, and the bytes of a file of arrays that holds everything else."""

    values: dict[str, Any]
    body: UInt8[np.ndarray, "byte"]

    @classmethod
    def of(cls, sampled: Sampled) -> Stored:
        """Store groups. The final states of interactions are left out: only rewards read them.

        Raises:
            DataError: if an example has a value that JSON does not have; the message shows it.
        """
        if (episodes := sampled.completed.episodes) is not None:
            episodes = attrs.evolve(episodes, states=(None,) * len(episodes.states))
            sampled = attrs.evolve(sampled, completed=attrs.evolve(sampled.completed, episodes=episodes))
        file, arrays = io.BytesIO(), dict[str, np.ndarray]()
        values = _split(sampled, "sampled", arrays)
        np.savez(file, allow_pickle=False, **arrays)
        return cls(values=json.loads(json.dumps(values, default=_plain)), body=np.frombuffer(file.getvalue(), np.uint8))

    def restore(self) -> Sampled:
        """Return the groups."""
        with np.load(io.BytesIO(self.body.tobytes()), allow_pickle=False) as arrays:
            return _joined(Sampled, self.values, "sampled", arrays)


def _plain(value: Any) -> Any:
    """Return a number of numpy's as one that JSON has."""
    if isinstance(value, np.generic):
        return value.item()
    raise DataError(
        "train.oversample keeps groups for later steps, which checkpoints store as JSON, and a column of their prompts"
        f" has the value {value!r}. Store a text or a number there, or leave train.oversample out"
    )


def _split(value: Any, path: str, arrays: dict[str, np.ndarray]) -> Any:
    """Return the JSON values of a part, and add its arrays by path; an array's own value is null."""
    if isinstance(value, np.ndarray):
        arrays[path] = value
        return None
    if attrs.has(type(value)):
        value = {name: getattr(value, name) for name in attrs.fields_dict(type(value))}
    elif not (isinstance(value, Mapping) and all(isinstance(each, np.ndarray) for each in value.values())):
        return value
    return {name: _split(each, f"{path}.{name}", arrays) for name, each in value.items()}


def _joined(part: type, values: Mapping[str, Any], path: str, arrays: Mapping[str, np.ndarray]) -> Any:
    found = {}
    for name, value in values.items():
        place = f"{path}.{name}"
        if name in PARTS and value is not None:
            found[name] = _joined(PARTS[name], value, place, arrays)
        elif place in arrays:
            found[name] = arrays[place]
        elif isinstance(value, dict):
            found[name] = {key: arrays[f"{place}.{key}"] for key in value}
        else:
            found[name] = tuple(value) if isinstance(value, list) else value
    return part(**found)
