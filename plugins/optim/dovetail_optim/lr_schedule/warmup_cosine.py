"""Learning-rate schedule `warmup_cosine`."""

from __future__ import annotations

from typing import Annotated

import jax.numpy as jnp
from annotated_types import Ge
from jaxtyping import Array, Float, Int

from dovetail_optim.lr_schedule._warmup import Share, Steps, after_warmup, warmup, warmup_length


def warmup_cosine(
    step: Int[Array, ""],
    total_steps: Int[Array, ""],
    *,
    warmup_ratio: Share = 0.05,
    warmup_steps: Steps = None,
    end: Annotated[float, Ge(0)] = 0.1,
) -> Float[Array, ""]:
    """Linear warm-up, then half a cosine from 1 down to `end`.

    factor = end + (1 - end)·½(1 + cos πp), with p the fraction of the steps after the warm-up that are done.
    Loshchilov and Hutter 2017, *SGDR*, equation 5, without restarts.

    Args:
        step: steps done, from 0.
        total_steps: total number of steps.
        warmup_ratio: fraction of the steps spent warming up.
        warmup_steps: number of steps spent warming up, in place of `warmup_ratio`.
        end: factor at the end.

    >>> warmup_cosine(jnp.int32(10), jnp.int32(10), warmup_ratio=0.0, end=0.25).item()
    0.25
    """
    length = warmup_length(total_steps, warmup_ratio, warmup_steps)
    done = after_warmup(step, total_steps, length)
    decay = end + (1.0 - end) * 0.5 * (1.0 + jnp.cos(jnp.pi * done))
    return warmup(step, length) * decay
