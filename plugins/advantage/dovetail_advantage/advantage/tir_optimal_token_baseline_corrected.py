"""Advantage `tir_optimal_token_baseline_corrected`: `tir_optimal_token_baseline` for a loss with off-policy weights."""

from __future__ import annotations

from typing import Annotated

import jax.numpy as jnp
from annotated_types import Ge
from jaxtyping import Array, Bool, Float, Int

from dovetail_advantage.advantage._optimal_baseline import in_policy_steps
from dovetail_advantage.advantage.optimal_token_baseline_corrected import optimal_token_baseline_corrected


def tir_optimal_token_baseline_corrected(
    token_rewards: Float[Array, "seq token"],
    old_logps: Float[Array, "seq token"],
    old_sum_pi_squared: Float[Array, "seq token"],
    is_weights: Float[Array, "seq token"],
    group_ids: Int[Array, "seq"],
    mask: Bool[Array, "seq token"],
    *,
    handle_zero_tail: bool = True,
    epsilon: Annotated[float, Ge(0)] = 1e-8,
) -> Float[Array, "seq token"]:
    """The corrected optimal token baseline, with completions compared policy token by policy token.

    Equations as in `optimal_token_baseline_corrected`, with t the t-th *policy* token of a completion. Li et al.
    2026, *The optimal token baseline: variance reduction for long-horizon LLM-RL*; ρ and the alignment as in verl.

    Deltas against `optimal_token_baseline_corrected`:

    1. t counts policy tokens, as in `tir_optimal_token_baseline`;
    2. `handle_zero_tail` is on by default.

    Args:
        token_rewards: r; the score is on the last policy token.
        old_logps: log π, nats, at collection.
        old_sum_pi_squared: ∑_v π_v² at collection, by the field `sum_pi_squared`.
        is_weights: ρ, from the run's `train.correction`; a run without a correction has none.
        group_ids: equal labels form a group; groups may be interleaved and of unequal size.
        mask: policy tokens.
        handle_zero_tail: take B = 0 where all other completions of the prompt have ended.
        epsilon: ε, in units of W.

    Returns:
        A, in units of reward, zero outside the mask. A group of one gets zero, and a group of equal returns exactly
        zero.

    Departures:
        As in `tir_optimal_token_baseline`; verl has both under that name.

    >>> rewards = jnp.array([[0.0, 0.0, 10.0], [0.0, 0.0, 0.0]])
    >>> mask = jnp.array([[True, False, True], [True, True, False]])
    >>> half, weights = jnp.full((2, 3), 0.5), jnp.array([[1.0, 1.0, 1.0], [3.0, 3.0, 3.0]])
    >>> ids = jnp.array([3, 3])
    >>> tir_optimal_token_baseline_corrected(rewards, jnp.log(half), half, weights, ids, mask).round(3).tolist()
    [[9.0, 0.0, 9.0], [-1.0, -1.0, 0.0]]
    """
    there, back = in_policy_steps(mask)
    fields = (token_rewards, old_logps, old_sum_pi_squared, is_weights, mask)
    rewards, logps, squares, weights, steps = [jnp.take_along_axis(field, there, axis=1) for field in fields]
    advantages = optimal_token_baseline_corrected(
        rewards, logps, squares, weights, group_ids, steps, handle_zero_tail=handle_zero_tail, epsilon=epsilon
    )
    return jnp.take_along_axis(advantages, back, axis=1)
