"""Learning-rate schedule `constant`."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Interval
from jaxtyping import Array, Float, Int

from dovetail_optim.lr_schedule._warmup import warmup


def constant(
    step: Int[Array, ""], total_steps: Int[Array, ""], *, warmup_ratio: Annotated[float, Interval(ge=0, le=1)] = 0.0
) -> Float[Array, ""]:
    """Factor 1 after a linear warm-up over the first `warmup_ratio` of the steps.

    >>> import jax.numpy as jnp
    >>> constant(jnp.int32(0), jnp.int32(10), warmup_ratio=0.2).item()
    0.5
    """
    return warmup(step, total_steps, warmup_ratio)
