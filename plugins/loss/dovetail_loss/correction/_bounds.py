"""Bounds that decide which tokens and completions are close enough to the sampler to be kept."""

from __future__ import annotations

from typing import Literal

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from dovetail.arrays import bounded, mean_over_tokens

Divergence = Literal["k1", "k2", "k3"]
"""Estimator of KL(μ‖π) from one token sampled from μ."""

Over = Literal["token", "sum", "mean", "max"]
"""Whether bounds apply to each token, or to the sum, mean or extreme over the tokens of a completion."""


def outside(
    values: Float[Array, "seq #token"], low: float | Array | None, high: float | Array
) -> Bool[Array, "seq #token"]:
    """Tell which values are below `low` or above `high`; None for no lower bound.

    NaN is neither, and so is kept and shows up in the loss or the metrics. If it were dropped, the run would continue
    although the model or the sampler is broken.

    >>> outside(jnp.array([[0.5, 1.0, 5.0, jnp.nan]]), 0.9, 1.1)
    Array([[ True, False,  True, False]], dtype=bool)
    """
    above = values > high
    return above if low is None else above | (values < low)


def divergence_of(log_ratios: Float[Array, "seq token"], divergence: Divergence) -> Float[Array, "seq token"]:
    """Return k1 = -x, k2 = x²/2 or k3 = eˣ - 1 - x, with x = log π - log μ bounded to ±20.

    >>> divergence_of(jnp.array([[2.0]]), "k2")
    Array([[2.]], dtype=float32)
    """
    x = bounded(log_ratios)
    return {
        "k1": lambda: -x,
        "k2": lambda: x * x / 2.0,
        "k3": lambda: jnp.expm1(x) - x,
    }[divergence]()


def within(
    log_ratios: Float[Array, "seq token"],
    mask: Bool[Array, "seq token"],
    *,
    divergence: Divergence,
    over: Over,
    low: float | None,
    high: float,
) -> Bool[Array, "seq token"]:
    """Return the policy tokens that are kept if low ≤ D ≤ high must hold for tokens or for completions.

    Under `max` every token of a completion must be within the bounds.

    Args:
        log_ratios: x = log π - log μ, zero outside the mask.
        mask: policy tokens.
        divergence: the estimator D of a token.
        over: what the bounds apply to.
        low: in nats; None for -high.
        high: in nats.

    >>> x = jnp.array([[0.3, 0.0], [0.1, -0.1]])
    >>> within(x, jnp.ones((2, 2), bool), divergence="k1", over="max", low=None, high=0.2)
    Array([[False, False],
           [ True,  True]], dtype=bool)
    """
    values = jnp.where(mask, divergence_of(log_ratios, divergence), 0.0)
    if over == "sum":
        values = jnp.sum(values, axis=-1, keepdims=True)
    elif over == "mean":
        values = mean_over_tokens(values, mask)
    rejected = outside(values, -high if low is None else low, high)
    if over == "max":
        rejected = jnp.any(rejected & mask, axis=-1, keepdims=True)
    return mask & ~rejected


def without_catastrophe(
    log_ratios: Float[Array, "seq token"], mask: Bool[Array, "seq token"], threshold: float
) -> Bool[Array, "seq token"]:
    """Return the policy tokens of completions in which every token has π/μ ≥ threshold.

    >>> x = jnp.log(jnp.array([[1.0, 1e-5], [1.0, 0.5]]))
    >>> without_catastrophe(x, jnp.ones((2, 2), bool), 1e-4)
    Array([[False, False],
           [ True,  True]], dtype=bool)
    """
    return mask & ~jnp.any(mask & (log_ratios < jnp.log(threshold)), axis=-1, keepdims=True)
