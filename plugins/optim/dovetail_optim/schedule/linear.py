"""Schedule `linear`."""

from __future__ import annotations

from jaxtyping import Array, Float, Int

from dovetail_optim.schedule._rise import Fraction, Weight, risen


def linear(
    step: Int[Array, ""], total_steps: Int[Array, ""], *, max_weight: Weight = 1.0, warmup_ratio: Fraction = 0.5
) -> Float[Array, ""]:
    """A straight rise: w = w_max·p.

    p = min(step / (warmup_ratio·total_steps), 1).

    Args:
        step: steps done, from 0.
        total_steps: total number of steps.
        max_weight: w_max, in units of the weight.
        warmup_ratio: fraction of the steps in which the weight rises.

    >>> import jax.numpy as jnp
    >>> linear(jnp.int32(1), jnp.int32(10), max_weight=0.5, warmup_ratio=0.2).item()
    0.25
    """
    return max_weight * risen(step, total_steps, warmup_ratio)
