"""What every formula over masked tokens needs."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def masked(x: Float[Array, "*shape"], mask: Bool[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Replace what lies outside the mask before any arithmetic, so that no derivative sees it; in float32 or better.

    >>> masked(jnp.array([2.0, jnp.nan]), jnp.array([True, False])).tolist()
    [2.0, 0.0]
    """
    return jnp.where(mask, x if x.dtype == jnp.float64 else x.astype(jnp.float32), 0.0)
