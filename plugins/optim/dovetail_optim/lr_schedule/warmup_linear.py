"""Learning-rate schedule `warmup_linear`."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Ge, Interval
from jaxtyping import Array, Float, Int

from dovetail_optim.lr_schedule._warmup import after_warmup, warmup


def warmup_linear(
    step: Int[Array, ""],
    total_steps: Int[Array, ""],
    *,
    warmup_ratio: Annotated[float, Interval(ge=0, le=1)] = 0.05,
    end: Annotated[float, Ge(0)] = 0.0,
) -> Float[Array, ""]:
    """Linear warm-up, then a line from 1 down to `end`; arguments as in `warmup_cosine`.

    >>> import jax.numpy as jnp
    >>> round(warmup_linear(jnp.int32(5), jnp.int32(10), warmup_ratio=0.0).item(), 3)
    0.5
    """
    done = after_warmup(step, total_steps, warmup_ratio)
    return warmup(step, total_steps, warmup_ratio) * (1.0 - (1.0 - end) * done)
