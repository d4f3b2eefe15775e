"""Learning-rate schedule `constant`."""

from __future__ import annotations

from jaxtyping import Array, Float, Int

from dovetail_optim.lr_schedule._warmup import Share, Steps, warmup, warmup_length


def constant(
    step: Int[Array, ""], total_steps: Int[Array, ""], *, warmup_ratio: Share = 0.0, warmup_steps: Steps = None
) -> Float[Array, ""]:
    """Factor 1 after a linear warm-up.

    Args:
        step: steps done, from 0.
        total_steps: total number of steps.
        warmup_ratio: fraction of the steps spent warming up.
        warmup_steps: number of steps spent warming up, in place of `warmup_ratio`.

    >>> import jax.numpy as jnp
    >>> constant(jnp.int32(0), jnp.int32(10), warmup_ratio=0.2).item()
    0.5
    """
    return warmup(step, warmup_length(total_steps, warmup_ratio, warmup_steps))
