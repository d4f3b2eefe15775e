"""Group filter `nonzero_variance`: keep groups whose completions do not all have the same score."""

from __future__ import annotations

from typing import Annotated

import jax.numpy as jnp
from annotated_types import Ge
from jaxtyping import Array, Bool, Float, Int

from dovetail.arrays import Groups


def nonzero_variance(
    scores: Float[Array, "seq"],
    group_ids: Int[Array, "seq"],
    mask: Bool[Array, "seq token"],
    *,
    tolerance: Annotated[float, Ge(0)] = 0.0,
) -> Bool[Array, "seq"]:
    """Keep a group if its scores differ: one whose completions all score the same has no group-relative advantage.

        keep_i = max_{j ∈ G(i)} s_j - min_{j ∈ G(i)} s_j > tolerance

    The dynamic sampling of DAPO: Yu et al. 2025, equation 11, which states it for right and wrong answers.

    Args:
        scores: s, one per completion.
        group_ids: G, which prompt a completion answers.
        mask: policy tokens; a completion without any (or without a score) belongs to no group.
        tolerance: keep only groups with a spread above this, in units of the score.

    Returns:
        For each completion, whether its group is kept; a row that belongs to no group follows the others of its prompt.

    >>> nonzero_variance(jnp.array([1.0, 0.0, 2.0, 2.0]), jnp.array([0, 0, 1, 1]), jnp.ones((4, 1), bool)).tolist()
    [True, True, False, False]
    """
    groups = Groups.of(group_ids, mask)
    above = groups.above_lowest(scores)
    return groups.total((above > tolerance).astype(jnp.float32)) > 0
