"""Casts, masks and bounds that every loss needs to get right, once."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

LOG_RATIO_BOUND = 20.0
"""Bound of a token's log-ratio in an exponent: e^20 ≈ 5e8 is finite, and outside any trust region."""


def full_precision(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Return `x` in float32, whatever the model's dtype; float64 stays.

    >>> full_precision(jnp.ones(1, jnp.bfloat16)).dtype
    dtype('float32')
    """
    return x if x.dtype == jnp.float64 else x.astype(jnp.float32)


def masked(x: Float[Array, "seq token"], mask: Bool[Array, "seq token"]) -> Float[Array, "seq token"]:
    """Return `x` in full precision, and zero outside the mask.

    Inputs are replaced before any arithmetic, not results after it: the derivative of a discarded exp(NaN)
    would still multiply its zero cotangent by NaN.

    >>> masked(jnp.array([[2.0, jnp.nan]]), jnp.array([[True, False]]))
    Array([[2., 0.]], dtype=float32)
    """
    return jnp.where(mask, full_precision(x), 0.0)


def clip(x: Float[Array, "*shape"], low: float | Array, high: float | Array) -> Float[Array, "*shape"]:
    """Bound `x` to [low, high]: gradient one inside and at the bounds, zero beyond.

    `jnp.clip` halves the gradient at a bound; here a token that sits exactly on it still learns.

    >>> import jax
    >>> jax.vmap(jax.grad(lambda x: clip(x, -1.0, 1.0)))(jnp.array([0.0, 1.0, 2.0]))
    Array([1., 1., 0.], dtype=float32)
    """
    return jnp.where(x < low, low, jnp.where(x > high, high, x))


def at_finite(
    function: Callable[[Float[Array, "*shape"]], Float[Array, "*shape"]], x: Float[Array, "*shape"]
) -> Float[Array, "*shape"]:
    """Return `function(x)` where `x` is finite, else `x` itself, so that only there a NaN is seen.

    For components without a mask: where the caller discards the value, no NaN enters the gradient either.

    >>> at_finite(jnp.square, jnp.array([3.0, jnp.nan]))
    Array([ 9., nan], dtype=float32)
    """
    finite = jnp.isfinite(x)
    return jnp.where(finite, function(jnp.where(finite, x, 0.0)), x)
