"""Advantage `grpo_leave_one_out`: the score relative to the prompt's others, in their standard deviations."""

from __future__ import annotations

from typing import Annotated

import jax.numpy as jnp
from annotated_types import Ge
from jaxtyping import Array, Bool, Float, Int

from dovetail.arrays import Groups, per_token
from dovetail.registry import declares


@declares(shift_invariant=True)
def grpo_leave_one_out(
    scores: Float[Array, "seq"],
    group_ids: Int[Array, "seq"],
    mask: Bool[Array, "seq token"],
    *,
    epsilon: Annotated[float, Ge(0)] = 1e-6,
) -> Float[Array, "seq token"]:
    """Group-relative advantage with mean and standard deviation over the *other* completions of the prompt.

        A_it = (s_i - mean_{G∖i}(s)) / (std_{G∖i}(s) + ε)   where the others' scores vary
        A_it =  s_i - mean_{G∖i}(s)                         where they are equal

    with G∖i the completions of i's prompt without i, and std with Bessel's correction. This is NeMo-RL's estimator
    for GRPO with its leave-one-out baseline and normalised rewards; without the division it is `rloo`.

    Deltas against `grpo`:

    1. neither the mean nor the standard deviation depends on the completion itself.
    2. no division where the others' scores are equal: a single success among n failures gets 1 rather than 1/ε.

    Args:
        scores: s, one per completion, in units of reward.
        group_ids: equal labels form a group; groups may be interleaved and of unequal size.
        mask: policy tokens. A row without any belongs to no group.
        epsilon: ε, in units of reward.

    Returns:
        A, the same at every policy token of a completion and zero elsewhere. A group of one gets zero, and a group of
        equal scores exactly zero. In a group of two there is never a division.

    Departures:
        NeMo-RL computes the variance as mean(s²) - mean(s)², which rounding makes slightly positive for some equal
        scores; it then divides by about ε. Here scores that differ by no more than rounding count as equal.

    >>> ids, mask = jnp.array([3, 3, 3, 8]), jnp.ones((4, 1), bool)
    >>> import numpy as np
    >>> np.asarray(grpo_leave_one_out(jnp.array([1.0, 0.0, 0.0, 5.0]), ids, mask), float).round(3).tolist()
    [[1.0], [-0.707], [-0.707], [0.0]]
    """
    groups = Groups.of(group_ids, mask)
    deviations = groups.deviations(scores)
    sizes = groups.sizes.astype(deviations.dtype)
    ratio = sizes / jnp.maximum(sizes - 1.0, 1.0)
    # With deviations d from the whole group's mean: ∑_{j≠i} (d_j - mean_{G∖i}(d))² = ∑_j d_j² - d_i²·n/(n-1).
    squares = groups.total(jnp.square(deviations))
    others = squares - jnp.square(deviations) * ratio
    vary = others > 16.0 * jnp.finfo(deviations.dtype).eps * squares
    std = jnp.sqrt(jnp.where(vary, others, 1.0) / jnp.maximum(sizes - 2.0, 1.0))
    return per_token(deviations * ratio / jnp.where(vary, std + epsilon, 1.0), mask)
