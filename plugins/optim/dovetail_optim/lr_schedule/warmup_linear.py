"""Learning-rate schedule `warmup_linear`."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Ge
from jaxtyping import Array, Float, Int

from dovetail_optim.lr_schedule._warmup import Share, Steps, after_warmup, warmup, warmup_length


def warmup_linear(
    step: Int[Array, ""],
    total_steps: Int[Array, ""],
    *,
    warmup_ratio: Share = 0.05,
    warmup_steps: Steps = None,
    end: Annotated[float, Ge(0)] = 0.0,
) -> Float[Array, ""]:
    """Linear warm-up, then a line from 1 down to `end`.

    Args:
        step: steps done, from 0.
        total_steps: total number of steps.
        warmup_ratio: fraction of the steps spent warming up.
        warmup_steps: number of steps spent warming up, in place of `warmup_ratio`.
        end: factor at the end.

    >>> import jax.numpy as jnp
    >>> round(warmup_linear(jnp.int32(5), jnp.int32(10), warmup_ratio=0.0).item(), 3)
    0.5
    """
    length = warmup_length(total_steps, warmup_ratio, warmup_steps)
    done = after_warmup(step, total_steps, length)
    return warmup(step, length) * (1.0 - (1.0 - end) * done)
