"""Learning-rate schedules, as factors of the peak learning rate."""

from __future__ import annotations

from typing import Annotated

import jax.numpy as jnp
from annotated_types import Ge, Interval
from jaxtyping import Array, Float, Int


def constant(
    step: Int[Array, ""], total_steps: Int[Array, ""], *, warmup_ratio: Annotated[float, Interval(ge=0, le=1)] = 0.0
) -> Float[Array, ""]:
    """Factor 1 after a linear warm-up over the first `warmup_ratio` of the steps.

    >>> constant(jnp.int32(0), jnp.int32(10), warmup_ratio=0.2).item()
    0.5
    """
    return _warmup(step, total_steps, warmup_ratio)


def warmup_cosine(
    step: Int[Array, ""],
    total_steps: Int[Array, ""],
    *,
    warmup_ratio: Annotated[float, Interval(ge=0, le=1)] = 0.05,
    end: Annotated[float, Ge(0)] = 0.1,
) -> Float[Array, ""]:
    """Linear warm-up, then half a cosine from 1 down to `end`.

    factor = end + (1 - end)·½(1 + cos πp), with p the share of the steps after the warm-up that are done.
    Loshchilov and Hutter 2017, *SGDR*, equation 5, without restarts.

    Args:
        step: steps done, from 0.
        total_steps: steps in all.
        warmup_ratio: share of the steps spent warming up.
        end: factor at the end.

    >>> warmup_cosine(jnp.int32(10), jnp.int32(10), warmup_ratio=0.0, end=0.25).item()
    0.25
    """
    done = _after_warmup(step, total_steps, warmup_ratio)
    decay = end + (1.0 - end) * 0.5 * (1.0 + jnp.cos(jnp.pi * done))
    return _warmup(step, total_steps, warmup_ratio) * decay


def warmup_linear(
    step: Int[Array, ""],
    total_steps: Int[Array, ""],
    *,
    warmup_ratio: Annotated[float, Interval(ge=0, le=1)] = 0.05,
    end: Annotated[float, Ge(0)] = 0.0,
) -> Float[Array, ""]:
    """Linear warm-up, then a line from 1 down to `end`; arguments as in `warmup_cosine`.

    >>> round(warmup_linear(jnp.int32(5), jnp.int32(10), warmup_ratio=0.0).item(), 3)
    0.5
    """
    done = _after_warmup(step, total_steps, warmup_ratio)
    return _warmup(step, total_steps, warmup_ratio) * (1.0 - (1.0 - end) * done)


def _warmup(step: Array, total_steps: Array, warmup_ratio: float) -> Array:
    steps = jnp.maximum(warmup_ratio * total_steps.astype(jnp.float32), 1.0)
    return jnp.minimum((step.astype(jnp.float32) + 1.0) / steps, 1.0)


def _after_warmup(step: Array, total_steps: Array, warmup_ratio: float) -> Array:
    total = total_steps.astype(jnp.float32)
    warmup = warmup_ratio * total
    return jnp.clip((step.astype(jnp.float32) - warmup) / jnp.maximum(total - warmup, 1.0), 0.0, 1.0)
