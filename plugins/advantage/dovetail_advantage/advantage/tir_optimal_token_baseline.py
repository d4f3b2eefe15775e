"""Advantage `tir_optimal_token_baseline`: returns minus the minimum-variance baseline at each policy token."""

from __future__ import annotations

from typing import Annotated

import jax.numpy as jnp
from annotated_types import Ge
from jaxtyping import Array, Bool, Float, Int

from dovetail_advantage.advantage._optimal_baseline import in_policy_steps
from dovetail_advantage.advantage.optimal_token_baseline import optimal_token_baseline


def tir_optimal_token_baseline(
    token_rewards: Float[Array, "seq token"],
    old_logps: Float[Array, "seq token"],
    old_sum_pi_squared: Float[Array, "seq token"],
    group_ids: Int[Array, "seq"],
    mask: Bool[Array, "seq token"],
    *,
    handle_zero_tail: bool = True,
    epsilon: Annotated[float, Ge(0)] = 1e-8,
) -> Float[Array, "seq token"]:
    """The optimal token baseline for tool-integrated reasoning: completions are compared policy token by policy token.

    Equations as in `optimal_token_baseline`, with t the t-th *policy* token of a completion. Li et al. 2026, *The
    optimal token baseline: variance reduction for long-horizon LLM-RL*; the alignment is verl's.

    Deltas against `optimal_token_baseline`:

    1. t counts policy tokens, so that tool output does not shift the next turn to later positions. Without gaps in the
       mask it is the same.
    2. `handle_zero_tail` is on by default.

    Args:
        token_rewards: r; the score is on the last policy token.
        old_logps: log π, nats, at collection.
        old_sum_pi_squared: ∑_v π_v² at collection, by the field `sum_pi_squared`.
        group_ids: equal labels form a group; groups may be interleaved and of unequal size.
        mask: policy tokens.
        handle_zero_tail: take B = 0 where all other completions of the prompt have ended.
        epsilon: ε, in units of W.

    Returns:
        A, in units of reward, zero outside the mask. A group of one gets zero, and a group of equal returns exactly
        zero.

    Departures:
        verl gives a group of one its raw return. With off-policy weights, it computes
        `tir_optimal_token_baseline_corrected`.

    >>> rewards = jnp.array([[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    >>> mask = jnp.array([[True, False, True], [True, True, False]])
    >>> half = jnp.full((2, 3), 0.5)
    >>> tir_optimal_token_baseline(rewards, jnp.log(half), half, jnp.array([3, 3]), mask).round(3).tolist()
    [[0.5, 0.0, 0.5], [-0.5, -0.5, 0.0]]
    """
    there, back = in_policy_steps(mask)
    fields = (token_rewards, old_logps, old_sum_pi_squared, mask)
    rewards, logps, squares, steps = [jnp.take_along_axis(field, there, axis=1) for field in fields]
    advantages = optimal_token_baseline(
        rewards, logps, squares, group_ids, steps, handle_zero_tail=handle_zero_tail, epsilon=epsilon
    )
    return jnp.take_along_axis(advantages, back, axis=1)
