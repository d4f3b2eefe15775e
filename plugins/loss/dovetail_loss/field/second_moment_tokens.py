"""Field `second_moment_tokens`: the tokens that stay within a budget of the log-ratio's second moment."""

from __future__ import annotations

from typing import Annotated

import jax.numpy as jnp
from annotated_types import Ge
from jaxtyping import Array, Bool, Float

from dovetail.arrays import log_ratio
from dovetail_loss.field._rank import first


def second_moment_tokens(
    old_logps: Float[Array, "seq token"],
    rollout_logps: Float[Array, "seq token"],
    mask: Bool[Array, "seq token"],
    *,
    budget: Annotated[float, Ge(0)] = 0.04,
) -> Bool[Array, "seq token"]:
    """As many tokens as possible whose mean squared log-ratio is below a budget; the largest go first.

        M2 = mean over the tokens kept of (log π_old - log μ)² < budget

    over the policy tokens of the mini-batch, with μ the policy that sampled. At least one token is kept. Zheng et
    al. 2025, *Prosperity before collapse: how far can off-policy RL reach with stale data on LLMs?*
    (arXiv:2510.01161).

    Args:
        old_logps: log π_old, in nats, by the trainer.
        rollout_logps: log μ, in nats, by the sampler.
        mask: policy tokens.
        budget: τ_M2, in nats²; 0.04 in the paper.

    Returns:
        True where a token is kept.

    Departures:
        As in AReaL the moment is that of the policy at the time of the update against the sampler's, over all
        tokens; the authors' code takes the current policy, and only tokens that A pushes further out.

    >>> old, sampled = jnp.array([[-1.0, -1.0, -1.0]]), jnp.array([[-1.1, -1.2, -3.0]])
    >>> second_moment_tokens(old, sampled, jnp.ones((1, 3), bool))
    Array([[ True,  True, False]], dtype=bool)
    """
    moment = jnp.square(log_ratio(old_logps, rollout_logps, mask))
    ordered = jnp.sort(jnp.where(mask, moment, jnp.inf).ravel())
    counts = jnp.arange(1, ordered.size + 1, dtype=moment.dtype)
    # Means of the smallest tokens rise with their number, so those below the budget come first.
    within = jnp.cumsum(ordered) / counts < budget
    return first(moment, mask, jnp.maximum(jnp.sum(within, dtype=moment.dtype), 1.0))
