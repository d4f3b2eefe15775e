"""Policy loss `m2po`: importance sampling without the few tokens that cause most of its variance."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from dovetail.arrays import indicator
from dovetail.registry import declares
from dovetail_loss.policy_loss.importance_sampling import importance_sampling


@declares(excludes=("correction",))
def m2po(
    logps: Float[Array, "seq token"],
    rollout_logps: Float[Array, "seq token"],
    advantages: Float[Array, "seq token"],
    mask: Bool[Array, "seq token"],
    second_moment_tokens: Bool[Array, "seq token"],
) -> tuple[Float[Array, "seq token"], dict[str, Float[Array, "seq token"]]]:
    """Second-moment trust policy optimisation: no clipping, but a few outliers are excluded.

        L = -M·A·r,  r = π(a|s) / μ(a|s),  M ∈ {0, 1}

    with μ the policy as the sampler reports it. Zheng et al. 2025, *Prosperity before collapse: how far can
    off-policy RL reach with stale data on LLMs?* (arXiv:2510.01161).

    Deltas against `ppo`:

    1. the ratio is to the policy that sampled, however stale;
    2. no clipping. Of the tokens that A pushes further from μ, M excludes those with the largest log-ratios, until the
       mean square of the others is within a budget (`field.second_moment_tokens.budget`). M is the field
       `second_moment_tokens`, computed once for the mini-batch.

    Args:
        logps: log π, in nats, differentiable.
        rollout_logps: log μ, in nats.
        advantages: A.
        mask: policy tokens; the loss is zero elsewhere.
        second_moment_tokens: M.

    Returns:
        The loss per token, the metrics of `importance_sampling`, and `clip_fraction`: excluded tokens.

    Departures:
        As in `importance_sampling` and `second_moment_tokens`.

    >>> new, one, true = jnp.zeros((1, 2)), jnp.ones((1, 2)), jnp.ones((1, 2), bool)
    >>> m2po(new, new, one, true, jnp.array([[True, False]]))[0].tolist()
    [[-1.0, 0.0]]
    """
    loss, metrics = importance_sampling(logps, rollout_logps, advantages, mask)
    dropped = mask & ~second_moment_tokens
    return jnp.where(dropped, 0.0, loss), metrics | {"clip_fraction": indicator(dropped, loss)}
