"""The two layouts in which folders store experts: a tensor for each of them, or all of a layer in one.

model.layers.0.mlp.experts.3.gate_proj.weight [outputs, inputs]             one expert (transformers 4 and 5)
model.layers.0.mlp.experts.gate_up_proj [expert, 2 · outputs, inputs]       all, gate above up (transformers 5)
model.layers.0.mlp.experts.down_proj [expert, outputs, inputs]
model.layers.0.mlp.experts.gate_proj.weight [expert, outputs, inputs]       our name of all gates, in no folder
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import attrs
import numpy as np

from dovetail_model.huggingface.safetensors import Readable

EXPERTS = re.compile(r"(?P<layer>.+\.experts)\.(?P<matrix>\w+)\.weight")
ONE = re.compile(r"(?P<layer>.+\.experts)\.(?P<expert>\d+)\.(?P<matrix>\w+)\.weight")
FUSED = re.compile(r"(?P<layer>.+\.experts)\.(?P<matrices>gate_up|down)_proj")


@attrs.frozen
class Stacked:
    """The tensors of several experts as one. If they differ in shape, it has that of the first that differs."""

    parts: tuple[Readable, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        shapes = [part.shape for part in self.parts]
        return len(shapes), *next((shape for shape in shapes if shape != shapes[0]), shapes[0])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Its type."""
        return self.parts[0].dtype

    def read(self) -> np.ndarray:
        """Return the array."""
        whole = np.empty(self.shape, self.dtype)
        for place, part in zip(whole, self.parts, strict=True):
            place[...] = part.read()
        return whole


@attrs.frozen
class Half:
    """The first or second half of the rows of every expert in a fused tensor."""

    whole: Readable
    second: bool

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        experts, rows, *rest = self.whole.shape
        return experts, rows // 2, *rest

    @property
    def dtype(self) -> np.dtype[Any]:
        """Its type."""
        return self.whole.dtype

    def read(self) -> np.ndarray:
        """Return the array."""
        rows = self.shape[1]
        return self.whole.read()[:, rows:] if self.second else self.whole.read()[:, :rows]


def stacked(found: Mapping[str, Readable], wanted: Iterable[str]) -> dict[str, Readable]:
    """Return a folder's tensors with those of experts, in either layout, under our names; `wanted` has all our names.

    A tensor of an expert that is missing makes the stack too short, and so its shape is not the wanted one.
    """
    ours = {name for name in wanted if EXPERTS.fullmatch(name)}
    result = dict(found)
    ones: dict[str, dict[int, Readable]] = {}
    for name, tensor in found.items():
        parts = _parts(name, tensor) if ours else {}
        if (match := ONE.fullmatch(name)) and (own := f"{match['layer']}.{match['matrix']}.weight") in ours:
            ones.setdefault(own, {})[int(match["expert"])] = result.pop(name)
        elif parts and parts.keys() <= ours:
            del result[name]
            result |= parts
    return result | {own: Stacked(tuple(each[number] for number in sorted(each))) for own, each in ones.items()}


def _parts(name: str, tensor: Readable) -> dict[str, Readable]:
    """Return the tensors under our names that a fused tensor consists of; none if it is not one."""
    match = FUSED.fullmatch(name)
    if match is None or len(tensor.shape) != 3:
        return {}
    if match["matrices"] == "down":
        return {f"{name}.weight": tensor}
    halves = (("gate", False), ("up", True))
    return {f"{match['layer']}.{matrix}_proj.weight": Half(tensor, second) for matrix, second in halves}


def names_of_each(name: str, experts: int) -> Iterator[str]:
    """Yield the name of each expert's tensor, from our name of all of them.

    >>> list(names_of_each("model.layers.0.mlp.experts.up_proj.weight", 2))[1]
    'model.layers.0.mlp.experts.1.up_proj.weight'
    """
    layer, _, rest = name.rpartition(".experts.")
    for number in range(experts):
        yield f"{layer}.experts.{number}.{rest}"
