"""The scalar head of a reward model or critic in a Hugging Face folder."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from dovetail.errors import ConfigError
from dovetail.protocols import ValueHead
from dovetail_model.source.source import Source

WEIGHT, BIAS = "score.weight", "score.bias"


def read_score(source: Source, width: int) -> ValueHead | None:
    """Return the head that `transformers` writes for a classifier with one label, or None if there is none.

    Raises:
        ConfigError: if the head has several labels, or expects hidden states of another width.
    """
    tensors = source.tensors()
    if WEIGHT not in tensors:
        return None
    if tensors[WEIGHT].shape != (1, width):
        raise ConfigError(
            f"{source.name}: {WEIGHT} is {list(tensors[WEIGHT].shape)}; a reward model has one label, [1, {width}]"
        )

    def read(name: str) -> Float[np.ndarray, "..."]:
        return np.array(tensors[name].read(), np.float32)

    return ValueHead(read(WEIGHT)[0], float(read(BIAS)[0]) if BIAS in tensors else 0.0)
