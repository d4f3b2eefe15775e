"""Learning-rate schedule `warmup_stable_decay`."""

from __future__ import annotations

from typing import Annotated

import jax.numpy as jnp
from annotated_types import Ge
from jaxtyping import Array, Float, Int

from dovetail_optim.lr_schedule._warmup import Share, Steps, warmup, warmup_length


def warmup_stable_decay(
    step: Int[Array, ""],
    total_steps: Int[Array, ""],
    *,
    warmup_ratio: Share = 0.05,
    warmup_steps: Steps = None,
    decay_ratio: Share = 0.2,
    end: Annotated[float, Ge(0)] = 0.0,
) -> Float[Array, ""]:
    """Linear warm-up, then 1, then a line down to `end` over the last steps.

    factor = 1 - (1 - end)·max(0, step - (1 - d)·T) / (d·T), with T all steps and d the decay's share of them.
    Hu et al. 2024, *MiniCPM*, section 4 (WSD), with a linear decay as in Hägele et al. 2024, *Scaling laws and
    compute-optimal training beyond fixed training durations*. Until the decay begins, the factor does not depend on how
    many steps there will be.

    Args:
        step: steps done, from 0.
        total_steps: total number of steps.
        warmup_ratio: fraction of the steps spent warming up.
        warmup_steps: number of steps spent warming up, in place of `warmup_ratio`.
        decay_ratio: d, the fraction of the steps, at the end, in which the factor falls.
        end: factor at the end.

    >>> [round(warmup_stable_decay(jnp.int32(n), jnp.int32(10), warmup_ratio=0.0).item(), 3) for n in (0, 8, 9, 10)]
    [1.0, 1.0, 0.5, 0.0]
    """
    total = total_steps.astype(jnp.float32)
    falling = decay_ratio * total
    done = jnp.clip((step.astype(jnp.float32) - (total - falling)) / jnp.maximum(falling, 1.0), 0.0, 1.0)
    return warmup(step, warmup_length(total_steps, warmup_ratio, warmup_steps)) * (1.0 - (1.0 - end) * done)
