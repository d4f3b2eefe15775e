"""Schedule `cosine`."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from dovetail_optim.schedule._rise import Fraction, Weight, risen


def cosine(
    step: Int[Array, ""], total_steps: Int[Array, ""], *, max_weight: Weight = 1.0, warmup_ratio: Fraction = 0.5
) -> Float[Array, ""]:
    """Half a cosine, slow at both ends: w = w_max·½(1 - cos πp); p as in `linear`.

    Args:
        max_weight: w_max, in units of the weight.
        warmup_ratio: fraction of the steps in which the weight rises.

    >>> cosine(jnp.int32(1), jnp.int32(10), warmup_ratio=0.2).item()
    0.5
    """
    return max_weight * 0.5 * (1.0 - jnp.cos(jnp.pi * risen(step, total_steps, warmup_ratio)))
