"""Advantage `gpg`: the score minus its group's mean, scaled up to make up for completions without a gradient."""

from __future__ import annotations

from typing import Annotated, Literal

import jax.numpy as jnp
from annotated_types import Gt
from jaxtyping import Array, Bool, Float, Int

from dovetail.arrays import Groups, masked, per_token
from dovetail.registry import declares


@declares(shift_invariant=True, zero_mean=True)
def gpg(
    scores: Float[Array, "seq"],
    group_ids: Int[Array, "seq"],
    mask: Bool[Array, "seq token"],
    *,
    f_norm: Annotated[float, Gt(0)] = 1.0,
    count: Literal["varied", "nonzero"] = "varied",
) -> Float[Array, "seq token"]:
    """Group policy gradient: the advantage of `dr_grpo` times the batch size over the completions with a gradient.

        A_it = α·(s_i - mean_G(s)) / F,   α = B / (B - M),  G the completions of i's prompt

    with B the number of completions in the batch and M the number in groups of equal scores, whose gradient is zero. A
    mean over the batch divides by all B; α turns it into the mean over those with a gradient, so that the step does not
    shrink as more prompts are always or never solved. Chu et al. 2025, *GPG: a simple and strong reinforcement learning
    baseline for model reasoning*, with its policy loss `gpg`.

    Deltas against `dr_grpo`:

    1. the factor α, which makes up for completions without a gradient.
    2. a constant divisor F.

    Args:
        scores: s, one per completion, in units of reward.
        group_ids: equal labels form a group; groups may be interleaved and of unequal size.
        mask: policy tokens. A row without any belongs to no group, and counts in neither B nor M.
        f_norm: F, in units of reward.
        count: the denominator of α. "varied": the B - M completions in groups whose scores vary; "nonzero": the
            completions with a score other than zero, as in verl.

    Returns:
        A, the same at every policy token of a completion and zero elsewhere. A group of one gets zero, and a group
        of equal scores exactly zero.

    Departures:
        verl uses `count="nonzero"`: with scores of 0 and 1, its α is the reciprocal of the fraction of solved
        completions, and it changes if a constant is added to all scores. It also counts rows without policy tokens in B
        and in their group, and gives a group of one its raw score.

    >>> ids, mask = jnp.array([3, 3, 8, 8]), jnp.ones((4, 1), bool)
    >>> gpg(jnp.array([1.0, 0.0, 1.0, 1.0]), ids, mask).tolist()  # α = 4/2
    [[1.0], [-1.0], [0.0], [0.0]]
    """
    groups = Groups.of(group_ids, mask)
    deviations = groups.deviations(scores)
    counted = groups.std(scores) > 0 if count == "varied" else masked(scores, groups.live) != 0
    alpha = jnp.sum(groups.live, dtype=deviations.dtype) / jnp.maximum(
        jnp.sum(groups.live & counted, dtype=deviations.dtype), 1.0
    )
    return per_token(alpha * deviations / f_norm, mask)
