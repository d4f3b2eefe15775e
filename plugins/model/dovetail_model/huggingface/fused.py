"""Splits tensors that a folder stores fused, such as Phi-3's queries, keys and values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs
import numpy as np

from dovetail_model.huggingface.safetensors import Readable
from dovetail_model.spec import Spec


@attrs.frozen
class Rows:
    """Some rows of a stored tensor."""

    whole: Readable
    start: int
    stop: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return (self.stop - self.start, *self.whole.shape[1:])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Its type."""
        return self.whole.dtype

    def read(self) -> np.ndarray:
        """Return the rows."""
        return self.whole.read()[self.start : self.stop]


def stored_together(spec: Spec) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the name of each fused tensor of a folder, with the names of its parts in order."""
    for number in range(len(spec.layers)):
        for whole, parts in spec.fused.items():
            yield f"{whole.format(number)}.weight", tuple(f"{part.format(number)}.weight" for part in parts)


def taken_apart(
    found: Mapping[str, Readable], spec: Spec, shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, Readable]:
    """Return a folder's tensors, with the fused ones split; `shapes` has the shapes of all parts.

    A tensor whose size is not the sum of its parts is left as it is.
    """
    apart = dict(found)
    for whole, parts in stored_together(spec):
        sizes = [shapes[part][0] for part in parts]
        if whole in apart and apart[whole].shape[0] == sum(sizes):
            tensor, ends = apart.pop(whole), np.cumsum(sizes).tolist()
            apart |= {part: Rows(tensor, end - n, end) for part, end, n in zip(parts, ends, sizes, strict=True)}
    return apart
