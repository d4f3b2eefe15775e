"""Schedule `sigmoid`."""

from __future__ import annotations

from typing import Annotated

import jax.numpy as jnp
from annotated_types import Gt
from jaxtyping import Array, Float, Int

from dovetail_optim.schedule._rise import Fraction, Weight, risen


def sigmoid(
    step: Int[Array, ""],
    total_steps: Int[Array, ""],
    *,
    max_weight: Weight = 1.0,
    warmup_ratio: Fraction = 0.5,
    steepness: Annotated[float, Gt(0)] = 10.0,
) -> Float[Array, ""]:
    """A logistic curve around the middle of the rise.

        w = w_max·½( 1 + tanh(k(p - ½)/2) / tanh(k/4) )

    the logistic function σ(k(p - ½)), stretched to begin at 0 and to end at w_max; p as in `linear`.

    Args:
        step: steps done, from 0.
        total_steps: total number of steps.
        max_weight: w_max, in units of the weight.
        warmup_ratio: fraction of the steps in which the weight rises.
        steepness: k > 0, in units of 1/p; the larger, the steeper in the middle of the rise.

    >>> sigmoid(jnp.int32(1), jnp.int32(10), warmup_ratio=0.2).item()
    0.5
    """
    done = risen(step, total_steps, warmup_ratio)
    return max_weight * 0.5 * (1.0 + jnp.tanh(0.5 * steepness * (done - 0.5)) / jnp.tanh(0.25 * steepness))
