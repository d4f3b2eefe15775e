"""Functions that the estimators share: the log-ratio, the clamp, and the straight-through gradient."""

from __future__ import annotations

import jax
from jaxtyping import Array, Float

from dovetail.arrays import clip, full_precision


def log_ratio(logps: Float[Array, "*shape"], ref_logps: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Return x = log π - log π_ref in full precision.

    >>> import jax.numpy as jnp
    >>> log_ratio(jnp.ones(1, jnp.bfloat16), jnp.zeros(1, jnp.bfloat16))
    Array([1.], dtype=float32)
    """
    return full_precision(logps) - full_precision(ref_logps)


def clamped(x: Float[Array, "*shape"], clamp: float | None) -> Float[Array, "*shape"]:
    """Clip an estimate to ±clamp, with gradient zero beyond; None leaves it unchanged.

    >>> import jax.numpy as jnp
    >>> clamped(jnp.array([-3.0, 1.0]), 2.0)
    Array([-2.,  1.], dtype=float32)
    """
    return x if clamp is None else clip(x, -clamp, clamp)


def straight_through(value: Float[Array, "*shape"], gradient_of: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Return `value` with the gradient of `gradient_of`.

    >>> straight_through(3.0, 1.0)
    3.0
    """
    return jax.lax.stop_gradient(value) + (gradient_of - jax.lax.stop_gradient(gradient_of))
