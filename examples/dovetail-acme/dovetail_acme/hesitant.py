"""Advantage `hesitant`: group-relative, and smaller where the policy was sure."""

from __future__ import annotations

from typing import Annotated

import dovetail
from annotated_types import Interval
from dovetail.arrays import Groups, masked, per_token
from jaxtyping import Array, Bool, Float, Int


@dovetail.declares(shift_invariant=True)
def hesitant(
    scores: Float[Array, "seq"],
    group_ids: Int[Array, "seq"],
    old_top_probability: Float[Array, "seq token"],
    mask: Bool[Array, "seq token"],
    *,
    strength: Annotated[float, Interval(ge=0, le=1)] = 0.5,
) -> Float[Array, "seq token"]:
    """Credit goes to the tokens at which the policy hesitated.

        A_it = ( s_i - mean_G(s) )·( 1 - c·p_it ),  G the completions of i's prompt

    with p the probability of the likeliest token at that position. Where the policy was certain there was no decision
    to reward. With c = 0 this is the group-relative advantage without a division by the deviation, `dr_grpo`.

    Args:
        scores: s, one per completion, in units of reward.
        group_ids: any labels; groups may be interleaved and of unequal size.
        old_top_probability: p, of the policy at collection; the field of this package.
        mask: policy tokens. A row without any is in no group: it does not shift the mean.
        strength: c.

    Returns:
        A, zero outside the mask, in a group of one, and in a group of equal scores.

    >>> import jax.numpy as jnp
    >>> scores, mask = jnp.array([5.0, 1.0, 9.0]), jnp.array([[True, False], [True, True], [False, False]])
    >>> sure = jnp.array([[1.0, jnp.nan], [0.5, 0.0], [0.0, 0.0]])
    >>> hesitant(scores, jnp.array([5, 5, 5]), sure, mask, strength=0.25).tolist()  # ±2·(1 - p/4); the 9 has no token
    [[1.5, 0.0], [-1.75, -2.0], [0.0, 0.0]]
    """
    above = Groups.of(group_ids, mask).deviations(scores)
    return per_token(above, mask) * (1.0 - strength * masked(old_top_probability, mask))
