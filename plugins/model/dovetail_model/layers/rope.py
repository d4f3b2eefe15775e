"""Rotary position embedding."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int


class Rotation(NamedTuple):
    """Cosine and sine of the angle by which each pair of dimensions turns; computed once, used by every layer."""

    cos: Float[Array, "row half"]
    sin: Float[Array, "row half"]


def frequencies(head_dim: int, theta: float) -> Float[Array, "half"]:
    """Return the angle per position of each pair: ωᵢ = θ^(-2i / head_dim), i = 0 … head_dim/2 - 1.

    >>> frequencies(4, 100.0).round(3)
    Array([1. , 0.1], dtype=float32)
    """
    return theta ** (-jnp.arange(0, head_dim, 2, dtype=jnp.float32) / head_dim)


def rotation(positions: Int[Array, "row"], frequencies: Float[Array, "half"]) -> Rotation:
    """Return the rotation of each row: angle = position · ω."""
    angles = positions[:, None].astype(jnp.float32) * frequencies[None, :]
    return Rotation(jnp.cos(angles), jnp.sin(angles))


def rotate(x: Float[Array, "row head head_dim"], by: Rotation) -> Float[Array, "row head head_dim"]:
    """Turn each pair (xᵢ, xᵢ₊ₕ), h = head_dim/2, by its row's angle φᵢ.

        yᵢ   = xᵢ cos φᵢ - xᵢ₊ₕ sin φᵢ
        yᵢ₊ₕ = xᵢ₊ₕ cos φᵢ + xᵢ sin φᵢ

    Su et al. 2021, "RoFormer", equation 34, so that the product of a query at position m and a key at n depends on
    m - n alone. The arithmetic is float32; the result has the dtype of `x`.

    *Departures*: the paper pairs neighbours (x₂ᵢ, x₂ᵢ₊₁); pairing the two halves is the same up to a permutation of the
    weights, and is how the published weights of Llama, Qwen and Gemma are stored.

    >>> quarter = rotation(jnp.array([1]), jnp.array([jnp.pi / 2]))
    >>> rotate(jnp.array([[[1.0, 0.0]]]), quarter).round(3) + 0.0
    Array([[[0., 1.]]], dtype=float32)
    """
    cos, sin = by.cos[:, None, :], by.sin[:, None, :]
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    turned = [first * cos - second * sin, second * cos + first * sin]
    return jnp.concatenate(turned, axis=-1).astype(x.dtype)
