"""Field `second_moment_tokens`: the tokens that M2PO trains on."""

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
    """All policy tokens except those whose log-ratio has moved furthest in the direction in which A pushes it.

        x = log π - log μ,  T = { tokens with A·x > 0 }
        while mean_T(x²) > τ:  remove the token with the largest x² from T and from the mask

    with μ the policy that sampled. Only tokens in T are ever removed: an update moves them further from μ, and the
    others back towards it. The mean of x² bounds the variance of the importance ratio and, unlike a mean of x, is
    sensitive to outliers. Zheng et al. 2025, *Prosperity before collapse: how far can off-policy RL reach with stale
    data on LLMs?* (arXiv:2510.01161), algorithm 1; the definition of T follows their code.

    Args:
        old_logps: log π, in nats, of the policy at collection, by the trainer.
        rollout_logps: log μ, in nats, by the sampler, which may be many updates older.
        advantages: A.
        mask: policy tokens.
        budget: τ, in nats²; 0.04 in the paper.

    Returns:
        True where a token is kept.

    Departures:
        The authors use the policy being trained, at every update, on each micro-batch. Here the mask is computed on the
        whole mini-batch, before it is split, with the policy at collection. At the first update this makes no
        difference, and at later ones the mask still reflects the staleness of the data. Their code also includes the
        removed tokens in the mean, each with the largest x² that is kept, and so removes more tokens than the algorithm
        in the paper. AReaL ranks all tokens, including those that move back towards μ.

    >>> old, sampled = jnp.array([[-1.0, -1.0, -1.0]]), jnp.array([[-1.1, -3.0, -3.0]])
    >>> second_moment_tokens(old, sampled, jnp.array([[1.0, 1.0, -1.0]]), jnp.ones((1, 3), bool)).tolist()
    [[True, False, True]]
    """
    x = log_ratio(old_logps, rollout_logps, mask)
    outward = mask & (x * masked(advantages, mask) > 0)
    moments = jnp.square(x)
    ordered = jnp.sort(jnp.where(outward, moments, jnp.inf).ravel())
    # The mean of the k smallest values rises with k, so the values of k within the budget are 1, 2, ..., k_max.
    within = jnp.cumsum(ordered) <= budget * jnp.arange(1, ordered.size + 1, dtype=ordered.dtype)
    return mask & (~outward | first(moments, outward, jnp.sum(within, dtype=moments.dtype)))
