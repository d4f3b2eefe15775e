"""Advantage `remax`: the return from each token on, minus the score of the prompt's greedy completion."""

from __future__ import annotations

from jaxtyping import Array, Bool, Float

from dovetail.arrays import masked, per_token, returns_to_go


def remax(
    token_rewards: Float[Array, "seq token"], greedy_scores: Float[Array, "seq"], mask: Bool[Array, "seq token"]
) -> Float[Array, "seq token"]:
    """The return from each token on, minus the score of the greedy completion of the same prompt.

        A_it = ∑_{k ≥ t} r_ik - b_i

    with the sum over policy tokens and b the score of the greedy completion. Li et al. 2023, *ReMax: a simple,
    effective, and efficient reinforcement learning method for aligning large language models*, algorithm 1. The
    baseline does not depend on the sampled completion, so that the policy gradient stays unbiased; one greedy
    completion per prompt is sampled for it.

    Deltas against `reinforce`:

    1. the score of the greedy completion as a baseline; no discount.

    Args:
        token_rewards: r; the score is on the last policy token.
        greedy_scores: b, in units of reward; the same for all completions of a prompt.
        mask: policy tokens; values elsewhere are ignored.

    Returns:
        A, in units of reward, zero outside the mask.

    Departures:
        None from verl, if all rewards are on policy tokens.

    >>> import jax.numpy as jnp
    >>> remax(jnp.array([[0.0, 1.0]]), jnp.array([0.25]), jnp.ones((1, 2), bool)).tolist()
    [[0.75, 0.75]]
    """
    live = mask.any(axis=-1)
    returns = returns_to_go(token_rewards, mask, 1.0)
    return masked(returns - per_token(masked(greedy_scores, live), mask), mask)
