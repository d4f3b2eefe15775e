"""Advantage `optimal_token_baseline_corrected`: `optimal_token_baseline` for a loss with off-policy weights."""

from __future__ import annotations

from typing import Annotated

import jax.numpy as jnp
from annotated_types import Ge
from jaxtyping import Array, Bool, Float, Int

from dovetail.arrays import masked, returns_to_go
from dovetail.registry import declares
from dovetail_advantage.advantage._optimal_baseline import against_optimal_baseline, energy


@declares(by_position=True, shift_invariant=True)
def optimal_token_baseline_corrected(
    token_rewards: Float[Array, "seq token"],
    old_logps: Float[Array, "seq token"],
    old_sum_pi_squared: Float[Array, "seq token"],
    is_weights: Float[Array, "seq token"],
    group_ids: Int[Array, "seq"],
    mask: Bool[Array, "seq token"],
    *,
    handle_zero_tail: bool = False,
    epsilon: Annotated[float, Ge(0)] = 1e-8,
) -> Float[Array, "seq token"]:
    """The return from each token on, minus a mean over the group weighted by squared norms of *corrected* gradients.

        W_it = ∑_{k ≤ t} ρ_ik²·(1 - 2·π_ik + ∑_v π_ikv²),   A and B from W as in `optimal_token_baseline`

    Li et al. 2026, *The optimal token baseline: variance reduction for long-horizon LLM-RL*; ρ as in verl.

    Deltas against `optimal_token_baseline`:

    1. the weight ρ that multiplies a token's loss also multiplies its gradient, and so multiplies its squared norm by
       ρ².

    Args:
        token_rewards: r; the score is on the last policy token.
        old_logps: log π, nats, at collection.
        old_sum_pi_squared: ∑_v π_v² at collection, by the field `sum_pi_squared`.
        is_weights: ρ, from the run's `train.correction`; a run without a correction has none.
        group_ids: equal labels form a group; groups may be interleaved and of unequal size.
        mask: policy tokens. Positions t count all tokens, as in `optimal_token_baseline`.
        handle_zero_tail: take B = 0 where all other completions of the prompt have ended.
        epsilon: ε, in units of W.

    Returns:
        A, in units of reward, zero outside the mask. A group of one gets zero, and a group of equal returns exactly
        zero.

    Departures:
        As in `optimal_token_baseline`; verl has both under that name.

    >>> rewards, weights = jnp.array([[10.0], [0.0]]), jnp.array([[1.0], [3.0]])
    >>> logps, squares = jnp.log(jnp.array([[0.5], [0.5]])), jnp.array([[0.5], [0.5]])
    >>> ids, mask = jnp.array([3, 3]), jnp.ones((2, 1), bool)
    >>> optimal_token_baseline_corrected(rewards, logps, squares, weights, ids, mask).round(3).tolist()
    [[9.0], [-1.0]]
    """
    returns = returns_to_go(token_rewards, mask, 1.0)
    energies = jnp.square(masked(is_weights, mask)) * energy(old_logps, old_sum_pi_squared, mask)
    return against_optimal_baseline(returns, energies, group_ids, mask, handle_zero_tail, epsilon)
