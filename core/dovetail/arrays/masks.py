"""Casts, masks and bounds for formulas over tokens."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def full_precision(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Return `x` in float32, whatever its dtype; float64 is kept.

    >>> full_precision(jnp.ones(1, jnp.bfloat16)).dtype
    dtype('float32')
    """
    return x if x.dtype == jnp.float64 else x.astype(jnp.float32)


def masked(x: Float[Array, "*shape"], mask: Bool[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Return `x` in full precision, with zeros outside the mask.

    Call it before any arithmetic: neither the result nor a derivative then depends on values outside the mask.

    >>> masked(jnp.array([[2.0, jnp.nan]]), jnp.array([[True, False]]))
    Array([[2., 0.]], dtype=float32)
    """
    return jnp.where(mask, full_precision(x), 0.0)


def per_token(x: Float[Array, "seq"], mask: Bool[Array, "seq token"]) -> Float[Array, "seq token"]:
    """Broadcast each completion's value to its policy tokens; zero everywhere else.

    >>> per_token(jnp.array([3.0]), jnp.array([[True, False, True]]))
    Array([[3., 0., 3.]], dtype=float32)
    """
    return jnp.where(mask, x[:, None], 0.0)


def in_units_of(x: Float[Array, "seq"], spread: Float[Array, "seq"], epsilon: float) -> Float[Array, "seq"]:
    """Return x / (spread + ε), or x itself where the denominator is zero.

    >>> in_units_of(jnp.array([3.0, 0.0]), jnp.array([2.0, 0.0]), 0.0)
    Array([1.5, 0. ], dtype=float32)
    """
    unit = spread + epsilon
    return x / jnp.where(unit > 0, unit, 1.0)


def mean_over_tokens(values: Float[Array, "seq token"], mask: Bool[Array, "seq token"]) -> Float[Array, "seq 1"]:
    """Mean over the policy tokens of each completion, in full precision; zero for a completion without any.

    >>> mean_over_tokens(jnp.array([[1.0, 3.0, 0.0]]), jnp.array([[True, True, False]]))
    Array([[2.]], dtype=float32)
    """
    kept = masked(values, mask)  # in bfloat16 there is no length of 257
    lengths = jnp.sum(mask, axis=-1, keepdims=True, dtype=kept.dtype)
    return jnp.sum(kept, axis=-1, keepdims=True) / jnp.maximum(lengths, 1.0)


def indicator(where: Bool[Array, "seq token"], like: Float[Array, "seq token"]) -> Float[Array, "seq token"]:
    """Return 1 where true and 0 elsewhere, in the dtype of `like`; its mean is a fraction.

    >>> indicator(jnp.array([[True, False]]), jnp.zeros((1, 2)))
    Array([[1., 0.]], dtype=float32)
    """
    return where.astype(like.dtype)


def clip(x: Float[Array, "*shape"], low: float | Array, high: float | Array) -> Float[Array, "*shape"]:
    """Clip `x` to [low, high], with gradient one inside and at the bounds, and zero beyond.

    `jnp.clip` halves the gradient at a bound; here a token exactly at a bound keeps its full gradient.

    >>> import jax
    >>> jax.vmap(jax.grad(lambda x: clip(x, -1.0, 1.0)))(jnp.array([0.0, 1.0, 2.0]))
    Array([1., 1., 0.], dtype=float32)
    """
    return jnp.where(x < low, low, jnp.where(x > high, high, x))


def at_finite(
    function: Callable[[Float[Array, "*shape"]], Float[Array, "*shape"]], x: Float[Array, "*shape"]
) -> Float[Array, "*shape"]:
    """Return `function(x)` where `x` is finite, and `x` itself elsewhere.

    For components that do not read a mask: a NaN stays at its own position and, once the caller has masked that
    position out, does not enter the gradient either.

    >>> at_finite(jnp.square, jnp.array([3.0, jnp.nan]))
    Array([ 9., nan], dtype=float32)
    """
    finite = jnp.isfinite(x)
    return jnp.where(finite, function(jnp.where(finite, x, 0.0)), x)
