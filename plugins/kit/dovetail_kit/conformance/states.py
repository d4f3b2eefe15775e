"""States that are saved in checkpoints: numpy arrays by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from dovetail_kit.conformance.check import Failed


def shapes(state: Mapping[str, Any]) -> dict[str, tuple[tuple[int, ...], str]]:
    """Return shape and type by name.

    Raises:
        Failed: if something is not an array, or has no elements, so that a checkpoint cannot hold it.
    """
    odd = {name: value for name, value in state.items() if not isinstance(value, np.ndarray) or not value.size}
    if odd:
        name, value = next(iter(odd.items()))
        raise Failed(f"'{name}' is {value!r}, not a numpy array with elements; np.asarray makes one of a number")
    return {name: (array.shape, array.dtype.name) for name, array in state.items()}


def differing(state: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> list[str]:
    """Return the names of the arrays that are not the same, where NaN is the same as NaN.

    >>> nothing = {"a": np.full(2, np.nan, jnp.bfloat16)}
    >>> differing(nothing, nothing)
    []
    >>> differing({"a": np.zeros(2), "b": np.ones(1)}, {"a": np.zeros(2), "b": np.zeros(1)})
    ['b']
    """
    return [name for name in state if not np.array_equal(state[name], other[name], equal_nan=_may_be_nan(state[name]))]


def _may_be_nan(array: np.ndarray) -> bool:
    return jnp.issubdtype(array.dtype, jnp.inexact)  # numpy itself does not take bfloat16 for a number
