"""The rise that schedules of a weight share."""

from __future__ import annotations

from typing import Annotated

import jax.numpy as jnp
from annotated_types import Ge, Interval
from jaxtyping import Array

Weight = Annotated[float, Ge(0)]
Fraction = Annotated[float, Interval(ge=0, le=1)]


def risen(step: Array, total_steps: Array, warmup_ratio: float) -> Array:
    """Return p, the fraction of the rise that is done: from 0 to 1, and 1 if there is no rise."""
    rise = warmup_ratio * total_steps.astype(jnp.float32)
    return jnp.where(rise > 0, jnp.minimum(step.astype(jnp.float32) / jnp.where(rise > 0, rise, 1.0), 1.0), 1.0)
