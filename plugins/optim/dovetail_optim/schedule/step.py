"""Schedule `step`."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from dovetail_optim.schedule._rise import Fraction, Weight, risen


def step(
    step: Int[Array, ""], total_steps: Int[Array, ""], *, max_weight: Weight = 1.0, warmup_ratio: Fraction = 0.5
) -> Float[Array, ""]:
    """A jump at the end of the warm-up: w = w_max where p = 1, else 0; p as in `linear`.

    Args:
        max_weight: w_max, in units of the weight.
        warmup_ratio: fraction of the steps in which the weight rises.

    >>> [step(jnp.int32(n), jnp.int32(10), warmup_ratio=0.2).item() for n in (1, 2)]
    [0.0, 1.0]
    """
    return max_weight * (risen(step, total_steps, warmup_ratio) >= 1.0).astype(jnp.float32)
