"""Schedules of a weight that fades something in; learning rates have theirs in `schedules`.

All rise from 0 to `max_weight` over the first `warmup_ratio` of the steps and stay there. With p the share of that rise
that is done,

    p = min( step / (warmup_ratio·total_steps), 1 ),   and 1 where there is no rise

they differ in the way between. No paper fixes these curves: here each is normalised, so that it begins at exactly 0 and
reaches exactly `max_weight`. With `warmup_ratio = 0` each is the constant `max_weight`.
"""

from __future__ import annotations

from typing import Annotated

import jax.numpy as jnp
from annotated_types import Ge, Gt, Interval
from jaxtyping import Array, Float, Int

Weight = Annotated[float, Ge(0)]
Share = Annotated[float, Interval(ge=0, le=1)]


def linear(
    step: Int[Array, ""], total_steps: Int[Array, ""], *, max_weight: Weight = 1.0, warmup_ratio: Share = 0.5
) -> Float[Array, ""]:
    """A straight rise: w = w_max·p.

    p = min(step / (warmup_ratio·total_steps), 1).

    Args:
        step: steps done, from 0.
        total_steps: steps in all.
        max_weight: w_max, in units of the weight.
        warmup_ratio: share of the steps in which the weight rises.

    >>> linear(jnp.int32(1), jnp.int32(10), max_weight=0.5, warmup_ratio=0.2).item()
    0.25
    """
    return max_weight * _risen(step, total_steps, warmup_ratio)


def cosine(
    step: Int[Array, ""], total_steps: Int[Array, ""], *, max_weight: Weight = 1.0, warmup_ratio: Share = 0.5
) -> Float[Array, ""]:
    """Half a cosine, slow at both ends: w = w_max·½(1 - cos πp); p and arguments as in `linear`.

    >>> cosine(jnp.int32(1), jnp.int32(10), warmup_ratio=0.2).item()
    0.5
    """
    return max_weight * 0.5 * (1.0 - jnp.cos(jnp.pi * _risen(step, total_steps, warmup_ratio)))


def sigmoid(
    step: Int[Array, ""],
    total_steps: Int[Array, ""],
    *,
    max_weight: Weight = 1.0,
    warmup_ratio: Share = 0.5,
    steepness: Annotated[float, Gt(0)] = 10.0,
) -> Float[Array, ""]:
    """A logistic curve around the middle of the rise.

        w = w_max·½( 1 + tanh(k(p - ½)/2) / tanh(k/4) )

    the logistic function σ(k(p - ½)), stretched to begin at 0 and to end at w_max; p as in `linear`.

    Args:
        step: steps done, from 0.
        total_steps: steps in all.
        max_weight: w_max, in units of the weight.
        warmup_ratio: share of the steps in which the weight rises.
        steepness: k > 0, in units of 1/p; the larger, the more of a jump at half of the rise.

    >>> sigmoid(jnp.int32(1), jnp.int32(10), warmup_ratio=0.2).item()
    0.5
    """
    risen = _risen(step, total_steps, warmup_ratio)
    return max_weight * 0.5 * (1.0 + jnp.tanh(0.5 * steepness * (risen - 0.5)) / jnp.tanh(0.25 * steepness))


def exponential(
    step: Int[Array, ""],
    total_steps: Int[Array, ""],
    *,
    max_weight: Weight = 1.0,
    warmup_ratio: Share = 0.5,
    rate: float = 5.0,
) -> Float[Array, ""]:
    """A rise that begins slowly and ends fast: w = w_max·(e^{kp} - 1)/(e^k - 1), p as in `linear`.

    Args:
        step: steps done, from 0.
        total_steps: steps in all.
        max_weight: w_max, in units of the weight.
        warmup_ratio: share of the steps in which the weight rises.
        rate: k, in units of 1/p; a negative one begins fast and ends slowly. 0 is no exponential, but `linear`.

    >>> round(exponential(jnp.int32(1), jnp.int32(10), warmup_ratio=0.2).item(), 4)
    0.0759
    """
    risen = _risen(step, total_steps, warmup_ratio)
    return max_weight * jnp.expm1(rate * risen) / jnp.expm1(rate)


def step(
    step: Int[Array, ""], total_steps: Int[Array, ""], *, max_weight: Weight = 1.0, warmup_ratio: Share = 0.5
) -> Float[Array, ""]:
    """A jump at the end of the warm-up: w = w_max where p = 1, else 0; p and arguments as in `linear`.

    >>> [step(jnp.int32(n), jnp.int32(10), warmup_ratio=0.2).item() for n in (1, 2)]
    [0.0, 1.0]
    """
    return max_weight * (_risen(step, total_steps, warmup_ratio) >= 1.0).astype(jnp.float32)


def _risen(step: Array, total_steps: Array, warmup_ratio: float) -> Array:
    rise = warmup_ratio * total_steps.astype(jnp.float32)
    return jnp.where(rise > 0, jnp.minimum(step.astype(jnp.float32) / jnp.where(rise > 0, rise, 1.0), 1.0), 1.0)
