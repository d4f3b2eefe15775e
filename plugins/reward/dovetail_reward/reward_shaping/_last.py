"""A number for a whole completion, as a reward of its last policy token."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def at_last(x: Float[Array, "seq"], mask: Bool[Array, "seq token"]) -> Float[Array, "seq token"]:
    """Put each completion's value on its last policy token; zero everywhere else, and in a row with an empty mask.

    >>> at_last(jnp.array([3.0, 5.0]), jnp.array([[True, False, True, False], [False] * 4])).tolist()
    [[0.0, 0.0, 3.0, 0.0], [0.0, 0.0, 0.0, 0.0]]
    """
    last = mask & (jnp.cumsum(mask[:, ::-1], axis=1)[:, ::-1] == 1)
    return jnp.where(last, x[:, None], 0.0)
