"""Advantage `grpo`: the score relative to those of the same prompt, in standard deviations."""

from __future__ import annotations

from typing import Annotated, Literal

from annotated_types import Ge
from jaxtyping import Array, Bool, Float, Int

from dovetail.arrays import Groups, in_units_of, per_token
from dovetail.registry import declares


@declares(shift_invariant=True, zero_mean=True)
def grpo(
    scores: Float[Array, "seq"],
    group_ids: Int[Array, "seq"],
    mask: Bool[Array, "seq token"],
    *,
    scale: Literal["group", "batch", "none"] = "group",
    epsilon: Annotated[float, Ge(0)] = 1e-6,
) -> Float[Array, "seq token"]:
    """Group-relative advantage: each completion's score minus its group's mean, over a standard deviation.

        A_it = (s_i - mean_G(s)) / (std(s) + ε),  G the completions of i's prompt

    with std² = ∑(s - mean)²/(n-1), Bessel's correction. Shao et al. 2024, *DeepSeekMath*, section 4.1.2 (outcome
    supervision). `scale="batch"` takes std over all completions of the batch, around the batch's own mean, so that
    the tiny differences within a group of nearly equal scores are not magnified: Liu et al. 2025, *Part I: Tricks or
    traps? A deep dive into RL for LLM reasoning*, section 4.1. `scale="none"` does not divide; it is `dr_grpo`.

    Args:
        scores: s, one per completion, in units of reward.
        group_ids: equal labels form a group; groups may be interleaved and of unequal size.
        mask: policy tokens. A row without any belongs to no group, and affects neither mean nor deviation.
        scale: the completions that std is computed over.
        epsilon: ε, in units of reward; unused if `scale="none"`.

    Returns:
        A, the same at every policy token of a completion and zero elsewhere. A group of one gets zero, and a
        group of equal scores exactly zero, even where ε is zero.

    Departures:
        verl counts rows without policy tokens as members of their group, and gives a group of one its raw score.
        tunix gives a group of one NaN. Both average the raw scores, so that float32 scores which are far from zero, or
        within 1e-7 of each other, suffer from rounding; here the group's lowest score is subtracted first. ε is 1e-4 in
        TRL, 1e-6 in tunix and verl.

    >>> import jax.numpy as jnp
    >>> mask = jnp.array([[True, True], [True, False], [True, True]])
    >>> import numpy as np
    >>> np.asarray(grpo(jnp.array([1.0, 0.0, 5.0]), jnp.array([3, 3, 8]), mask), float).round(3).tolist()
    [[0.707, 0.707], [-0.707, 0.0], [0.0, 0.0]]
    """
    groups = Groups.of(group_ids, mask)
    deviations = groups.deviations(scores)
    if scale == "none":
        return per_token(deviations, mask)
    population = groups if scale == "group" else Groups.whole(mask)
    return per_token(in_units_of(deviations, population.std(scores), epsilon), mask)
