"""Advantage `optimal_token_baseline`: returns minus the minimum-variance baseline at each position."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Ge
from jaxtyping import Array, Bool, Float, Int

from dovetail.arrays import returns_to_go
from dovetail.registry import declares
from dovetail_advantage.advantage._optimal_baseline import against_optimal_baseline, energy


@declares(by_position=True, shift_invariant=True)
def optimal_token_baseline(
    token_rewards: Float[Array, "seq token"],
    old_logps: Float[Array, "seq token"],
    old_sum_pi_squared: Float[Array, "seq token"],
    group_ids: Int[Array, "seq"],
    mask: Bool[Array, "seq token"],
    *,
    handle_zero_tail: bool = False,
    epsilon: Annotated[float, Ge(0)] = 1e-8,
) -> Float[Array, "seq token"]:
    """The return from each token on, minus a mean over the group that is weighted by squared gradient norms so far.

        A_it = G_it - B_t,   B_t = ∑_j W_jt·G_jt / (∑_j W_jt + ε)
        W_it = ∑_{k ≤ t} (1 - 2·π_ik + ∑_v π_ikv²),   G_it = ∑_{k ≥ t} r_ik

    over the completions j of i's prompt with a policy token at position t. π_ik is the probability of token k and
    π_ikv that of v in its place: 1 - 2π + ∑π² is the squared norm of ∇ log π with respect to the logits, so that W
    stands for the squared norm of the gradient up to t without a backward pass. Li et al. 2026, *The optimal token
    baseline: variance reduction for long-horizon LLM-RL*.

    Deltas against `opo`:

    1. a baseline for each position, over the completions that reach it;
    2. weights from the policy's certainty instead of the number of tokens.

    Args:
        token_rewards: r; the score is on the last policy token.
        old_logps: log π, nats, at collection.
        old_sum_pi_squared: ∑_v π_v² at collection, by the field `sum_pi_squared`.
        group_ids: equal labels form a group; groups may be interleaved and of unequal size.
        mask: policy tokens. Positions t count all tokens; for completions with tool output in between, whose turns are
            not aligned, use `tir_optimal_token_baseline`.
        handle_zero_tail: take B = 0 where all other completions of the prompt have ended. Otherwise the longest one
            is its own baseline there, so that its tail has no gradient.
        epsilon: ε, in units of W.

    Returns:
        A, in units of reward, zero outside the mask. A group of one gets zero, and a group of equal returns exactly
        zero.

    Departures:
        verl gives a group of one its raw return. With `handle_zero_tail`, verl compares positions with counts of policy
        tokens, which differ if the mask has gaps; here the tail begins after the last policy token of all others. With
        off-policy weights, verl computes `optimal_token_baseline_corrected`.

    >>> import jax.numpy as jnp
    >>> rewards, ids, mask = jnp.array([[5.0], [0.0]]), jnp.array([3, 3]), jnp.ones((2, 1), bool)
    >>> logps, squares = jnp.log(jnp.array([[0.5], [0.75]])), jnp.array([[0.5], [0.625]])
    >>> optimal_token_baseline(rewards, logps, squares, ids, mask).round(3).tolist()  # W = 1/2, 1/8
    [[1.0], [-4.0]]
    """
    returns = returns_to_go(token_rewards, mask, 1.0)
    energies = energy(old_logps, old_sum_pi_squared, mask)
    return against_optimal_baseline(returns, energies, group_ids, mask, handle_zero_tail, epsilon)
