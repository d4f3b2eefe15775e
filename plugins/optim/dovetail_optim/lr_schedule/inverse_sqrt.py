"""Learning-rate schedule `inverse_sqrt`."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from dovetail_optim.lr_schedule._warmup import Share, Steps, warmup, warmup_length


def inverse_sqrt(
    step: Int[Array, ""], total_steps: Int[Array, ""], *, warmup_ratio: Share = 0.05, warmup_steps: Steps = None
) -> Float[Array, ""]:
    """Linear warm-up over w steps, then a fall with the square root of the steps: the schedule of the transformer.

    factor = min((step + 1) / w, 1)·√( w / max(step, w) ).   Vaswani et al. 2017, *Attention is all you need*, equation
    3, divided by its maximum. Without a warm-up w is 1.

    Args:
        step: steps done, from 0.
        total_steps: total number of steps.
        warmup_ratio: fraction of the steps spent warming up.
        warmup_steps: w, the number of steps spent warming up, in place of `warmup_ratio`.

    >>> [inverse_sqrt(jnp.int32(n), jnp.int32(100), warmup_steps=4).item() for n in (1, 4, 16)]
    [0.5, 1.0, 0.5]
    """
    length = jnp.maximum(warmup_length(total_steps, warmup_ratio, warmup_steps), 1.0)
    return warmup(step, length) * jnp.sqrt(length / jnp.maximum(step.astype(jnp.float32), length))
