"""Schedule `exponential`."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from dovetail_optim.schedule._rise import Share, Weight, risen


def exponential(
    step: Int[Array, ""],
    total_steps: Int[Array, ""],
    *,
    max_weight: Weight = 1.0,
    warmup_ratio: Share = 0.5,
    rate: float = 5.0,
) -> Float[Array, ""]:
    """A rise that begins slowly and ends fast: w = w_max·(e^{kp} - 1)/(e^k - 1), p as in `linear`.

    Args:
        step: steps done, from 0.
        total_steps: steps in all.
        max_weight: w_max, in units of the weight.
        warmup_ratio: share of the steps in which the weight rises.
        rate: k, in units of 1/p; a negative one begins fast and ends slowly. 0 is no exponential, but `linear`.

    >>> round(exponential(jnp.int32(1), jnp.int32(10), warmup_ratio=0.2).item(), 4)
    0.0759
    """
    done = risen(step, total_steps, warmup_ratio)
    return max_weight * jnp.expm1(rate * done) / jnp.expm1(rate)
