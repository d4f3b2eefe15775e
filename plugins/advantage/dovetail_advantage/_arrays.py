"""Casts and masks that every estimator needs to get right, once."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def full_precision(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Return `x` in float32, whatever its dtype; float64 stays.

    >>> full_precision(jnp.ones(1, jnp.bfloat16)).dtype
    dtype('float32')
    """
    return x if x.dtype == jnp.float64 else x.astype(jnp.float32)


def masked(x: Float[Array, "*shape"], mask: Bool[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Return `x` in full precision, and zero outside the mask.

    Inputs are replaced before any arithmetic, so that neither a value nor a derivative sees what lay there.

    >>> masked(jnp.array([[2.0, jnp.nan]]), jnp.array([[True, False]]))
    Array([[2., 0.]], dtype=float32)
    """
    return jnp.where(mask, full_precision(x), 0.0)


def per_token(x: Float[Array, "seq"], mask: Bool[Array, "seq token"]) -> Float[Array, "seq token"]:
    """Give each policy token its completion's value, and every other position zero.

    >>> per_token(jnp.array([3.0]), jnp.array([[True, False, True]]))
    Array([[3., 0., 3.]], dtype=float32)
    """
    return jnp.where(mask, x[:, None], 0.0)


def in_units_of(x: Float[Array, "seq"], spread: Float[Array, "seq"], epsilon: float) -> Float[Array, "seq"]:
    """Return x / (spread + ε), and x itself where that would divide by zero.

    >>> in_units_of(jnp.array([3.0, 0.0]), jnp.array([2.0, 0.0]), 0.0)
    Array([1.5, 0. ], dtype=float32)
    """
    unit = spread + epsilon
    return x / jnp.where(unit > 0, unit, 1.0)
