"""The warm-up that learning-rate schedules share."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array


def warmup(step: Array, total_steps: Array, warmup_ratio: float) -> Array:
    """Rise from above 0 to 1 over the first `warmup_ratio` of the steps."""
    steps = jnp.maximum(warmup_ratio * total_steps.astype(jnp.float32), 1.0)
    return jnp.minimum((step.astype(jnp.float32) + 1.0) / steps, 1.0)


def after_warmup(step: Array, total_steps: Array, warmup_ratio: float) -> Array:
    """Fraction of the steps after the warm-up that are done, from 0 to 1."""
    total = total_steps.astype(jnp.float32)
    begun = warmup_ratio * total
    return jnp.clip((step.astype(jnp.float32) - begun) / jnp.maximum(total - begun, 1.0), 0.0, 1.0)
