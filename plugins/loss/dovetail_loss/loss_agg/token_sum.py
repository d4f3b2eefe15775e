"""Aggregation `token_sum`: the sum over tokens, divided by a constant."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Gt
from jaxtyping import Array, Bool, Float


def token_sum(
    mask: Bool[Array, "seq token"], *, normalizer: Annotated[float, Gt(0)] = 1.0
) -> Float[Array, "seq token"]:
    """Sum over all policy tokens of the mini-batch, divided by a constant.

        w_it = m_it / Z

    The learning rate must be chosen for the size of the mini-batch, since the sum is not divided by it.

    Args:
        mask: m, policy tokens of the whole mini-batch.
        normalizer: Z.

    >>> import jax.numpy as jnp
    >>> token_sum(jnp.array([[True, False]])).tolist()
    [[1.0, 0.0]]
    """
    return mask.astype(float) / normalizer
