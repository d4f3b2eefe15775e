"""Schedule `exponential`."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from dovetail_optim.schedule._rise import Fraction, Weight, risen


def exponential(
    step: Int[Array, ""],
    total_steps: Int[Array, ""],
    *,
    max_weight: Weight = 1.0,
    warmup_ratio: Fraction = 0.5,
    rate: float = 5.0,
) -> Float[Array, ""]:
    """A rise that starts slowly and ends fast: w = w_max·(e^{kp} - 1)/(e^k - 1), p as in `linear`.

    Args:
        step: steps done, from 0.
        total_steps: total number of steps.
        max_weight: w_max, in units of the weight.
        warmup_ratio: fraction of the steps in which the weight rises.
        rate: k, in units of 1/p; a negative rate starts fast and ends slowly, and 0 is `linear`.

    >>> round(exponential(jnp.int32(1), jnp.int32(10), warmup_ratio=0.2).item(), 4)
    0.0759
    """
    done = risen(step, total_steps, warmup_ratio)
    curved = jnp.where(rate == 0, 1.0, rate)  # a rate of zero would divide zero by zero
    return max_weight * jnp.where(rate == 0, done, jnp.expm1(curved * done) / jnp.expm1(curved))
