"""Casts, masks and bounds that every formula over tokens needs."""

from __future__ import annotations

from collections.abc import Callable

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


def mean_over_tokens(values: Float[Array, "seq token"], mask: Bool[Array, "seq token"]) -> Float[Array, "seq 1"]:
    """Mean over the policy tokens of each completion; zero where there are none.

    >>> mean_over_tokens(jnp.array([[1.0, 3.0, 0.0]]), jnp.array([[True, True, False]]))
    Array([[2.]], dtype=float32)
    """
    lengths = jnp.sum(mask, axis=-1, keepdims=True, dtype=values.dtype)
    return jnp.sum(jnp.where(mask, values, 0.0), axis=-1, keepdims=True) / jnp.maximum(lengths, 1.0)


def indicator(where: Bool[Array, "seq token"], like: Float[Array, "seq token"]) -> Float[Array, "seq token"]:
    """Return 1 where true and 0 elsewhere, in the precision of `like`: a fraction, once averaged.

    >>> indicator(jnp.array([[True, False]]), jnp.zeros((1, 2)))
    Array([[1., 0.]], dtype=float32)
    """
    return where.astype(like.dtype)


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
