"""The warm-up that learning-rate schedules share."""

from __future__ import annotations

from typing import Annotated

import jax.numpy as jnp
from annotated_types import Ge, Interval
from jaxtyping import Array

Share = Annotated[float, Interval(ge=0, le=1)]
"""A fraction of the steps."""
Steps = Annotated[int, Ge(0)] | None
"""A number of steps that replaces the fraction, unless it is None."""


def warmup_length(total_steps: Array, ratio: float, steps: int | None) -> Array:
    """Return the number of steps that warm up: `steps`, or else the fraction `ratio` of all."""
    return ratio * total_steps.astype(jnp.float32) if steps is None else jnp.float32(steps)


def warmup(step: Array, length: Array) -> Array:
    """Rise from above 0 to 1 over the first `length` steps."""
    return jnp.minimum((step.astype(jnp.float32) + 1.0) / jnp.maximum(length, 1.0), 1.0)


def after_warmup(step: Array, total_steps: Array, length: Array) -> Array:
    """Fraction of the steps after the warm-up that are done, from 0 to 1."""
    total = total_steps.astype(jnp.float32)
    return jnp.clip((step.astype(jnp.float32) - length) / jnp.maximum(total - length, 1.0), 0.0, 1.0)
