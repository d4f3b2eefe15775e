"""Field `second_moment_tokens`: the tokens that M2PO learns from."""

from __future__ import annotations

from typing import Annotated

import jax.numpy as jnp
from annotated_types import Ge
from jaxtyping import Array, Bool, Float

from dovetail.arrays import log_ratio, masked
from dovetail_loss.field._rank import first


def second_moment_tokens(
    old_logps: Float[Array, "seq token"],
    rollout_logps: Float[Array, "seq token"],
    advantages: Float[Array, "seq token"],
    mask: Bool[Array, "seq token"],
    *,
    budget: Annotated[float, Ge(0)] = 0.04,
) -> Bool[Array, "seq token"]:
    """All policy tokens but those whose log-ratio has moved furthest the way that A pushes it.

        x = log π - log μ,  T = { tokens with A·x > 0 }
        while mean_T(x²) > τ:  take the largest x² out of T and out of the mask

    with μ the policy that sampled. Only tokens of T are ever left out: an update takes them further from μ, while the
    others come back. x² bounds the variance of the importance ratio, and is sensitive to outliers, where a mean of x is
    not. Zheng et al. 2025, *Prosperity before collapse: how far can off-policy RL reach with stale data on LLMs?*
    (arXiv:2510.01161), algorithm 1; which tokens are in T is as in their code.

    Args:
        old_logps: log π, in nats, of the policy at collection, by the trainer.
        rollout_logps: log μ, in nats, by the sampler, which may be many updates older.
        advantages: A.
        mask: policy tokens.
        budget: τ, in nats²; 0.04 in the paper.

    Returns:
        True where a token is kept.

    Departures:
        The authors look at the policy being trained, at every update, a micro-batch at a time. Here the mask is made on
        the whole mini-batch, before it is split, and from the policy at collection: the same at the first update, and
        the staleness of the data is in it at every one. Their code also counts the tokens that it leaves out, each with
        the largest x² that is kept, and so leaves out more than the algorithm in the paper. AReaL's ranks all tokens,
        those that come back too.

    >>> old, sampled = jnp.array([[-1.0, -1.0, -1.0]]), jnp.array([[-1.1, -3.0, -3.0]])
    >>> second_moment_tokens(old, sampled, jnp.array([[1.0, 1.0, -1.0]]), jnp.ones((1, 3), bool))
    Array([[ True, False,  True]], dtype=bool)
    """
    x = log_ratio(old_logps, rollout_logps, mask)
    outward = mask & (x * masked(advantages, mask) > 0)
    moments = jnp.square(x)
    ordered = jnp.sort(jnp.where(outward, moments, jnp.inf).ravel())
    # The mean of the k smallest rises with k, so the numbers k whose mean is within the budget are 1, 2, ... up to one.
    within = jnp.cumsum(ordered) <= budget * jnp.arange(1, ordered.size + 1, dtype=ordered.dtype)
    return mask & (~outward | first(moments, outward, jnp.sum(within, dtype=moments.dtype)))
