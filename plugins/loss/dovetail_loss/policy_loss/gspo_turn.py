"""Policy loss `gspo_turn`: the clipped surrogate of each turn's geometric-mean ratio."""

from __future__ import annotations

from typing import Annotated

import jax
import jax.numpy as jnp
from annotated_types import Ge
from jaxtyping import Array, Bool, Float, Int

from dovetail.arrays import LOG_SEQUENCE_RATIO_BOUND, Turns, clip, log_ratio, masked
from dovetail.registry import declares
from dovetail_loss.policy_loss._clipped import clipped_surrogate, ratio_metrics


@declares(on_policy_gradient=True, pessimistic=True, surrogate=True)
def gspo_turn(
    logps: Float[Array, "seq token"],
    old_logps: Float[Array, "seq token"],
    advantages: Float[Array, "seq token"],
    turns: Int[Array, "seq token"],
    mask: Bool[Array, "seq token"],
    *,
    epsilon_low: Annotated[float, Ge(0)] = 3e-4,
    epsilon_high: Annotated[float, Ge(0)] = 4e-4,
) -> tuple[Float[Array, "seq token"], dict[str, Float[Array, "seq token"]]]:
    """Group sequence policy optimisation by turns, in the token form: one ratio for each turn of an episode.

        s_ik = exp( (1/n_ik)·∑_{t in turn k} [log π - log π_old] ),  n_ik the policy tokens of turn k
        s_it = sg[s_ik]·π_it / sg[π_it],  k the turn of token t
        L_it = max(-A_it·s_it, -A_it·clip(s_it, 1-ε_low, 1+ε_high))

    with sg the stop-gradient, as in `gspo`. A mean over a long episode barely changes, and says little about any single
    turn. Wan et al. 2025, *ReMA: learning to meta-think for LLMs with multi-agent reinforcement learning*, the
    turn-level ratio.

    Deltas against `gspo`:

    1. the mean is over a turn, so that the turns of an episode are clipped separately. In an episode of one turn it is
       `gspo`.

    Args:
        logps: log π, in nats, differentiable.
        old_logps: log π_old, in nats.
        advantages: A; may differ from token to token.
        turns: which turn a token belongs to.
        mask: policy tokens; the loss is zero elsewhere.
        epsilon_low: ε_low, in units of the ratio.
        epsilon_high: ε_high; both defaults are those of `gspo`, since a turn's mean varies about as little.

    Returns:
        The loss per token, and per-token metrics as in `ppo`; `ratio` is the turn's.

    Departures:
        ReMA clips at 0.2, bounds log s from above by 3 (here by 10, with gradient zero beyond, as in `gspo`), has a
        dual clip, averages A over each turn, and gives every turn of an episode the same weight. Here the aggregation
        determines the weights; equal weights for turns favour episodes with few turns.

    >>> old, ones = jnp.zeros((1, 3)), jnp.ones((1, 3))
    >>> new, turns = jnp.array([[0.3, -0.1, 0.0]]), jnp.array([[0, 0, 1]])
    >>> _, metrics = gspo_turn(new, old, ones, turns, ones > 0)
    >>> import numpy as np
    >>> np.asarray(metrics["ratio"], float).round(3).tolist()  # e^0.1 in turn 0
    [[1.105, 1.105, 1.0]]
    """
    x, own, by_turn = log_ratio(logps, old_logps, mask), masked(logps, mask), Turns.of(turns, mask)
    means = jax.lax.stop_gradient(by_turn.per_token(by_turn.mean(x)))
    ratio = jnp.exp(clip(means + (own - jax.lax.stop_gradient(own)), -jnp.inf, LOG_SEQUENCE_RATIO_BOUND))
    loss, metrics = clipped_surrogate(ratio, advantages, mask, epsilon_low=epsilon_low, epsilon_high=epsilon_high)
    return loss, metrics | ratio_metrics(x, ratio, mask)
