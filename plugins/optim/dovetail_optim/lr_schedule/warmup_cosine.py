"""Learning-rate schedule `warmup_cosine`."""

from __future__ import annotations

from typing import Annotated

import jax.numpy as jnp
from annotated_types import Ge, Interval
from jaxtyping import Array, Float, Int

from dovetail_optim.lr_schedule._warmup import after_warmup, warmup


def warmup_cosine(
    step: Int[Array, ""],
    total_steps: Int[Array, ""],
    *,
    warmup_ratio: Annotated[float, Interval(ge=0, le=1)] = 0.05,
    end: Annotated[float, Ge(0)] = 0.1,
) -> Float[Array, ""]:
    """Linear warm-up, then half a cosine from 1 down to `end`.

    factor = end + (1 - end)·½(1 + cos πp), with p the fraction of the steps after the warm-up that are done.
    Loshchilov and Hutter 2017, *SGDR*, equation 5, without restarts.

    Args:
        step: steps done, from 0.
        total_steps: total number of steps.
        warmup_ratio: fraction of the steps spent warming up.
        end: factor at the end.

    >>> warmup_cosine(jnp.int32(10), jnp.int32(10), warmup_ratio=0.0, end=0.25).item()
    0.25
    """
    done = after_warmup(step, total_steps, warmup_ratio)
    decay = end + (1.0 - end) * 0.5 * (1.0 + jnp.cos(jnp.pi * done))
    return warmup(step, total_steps, warmup_ratio) * decay
