"""Policy loss `topr`: REINFORCE with a truncated importance weight on failures but not on successes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from dovetail.arrays import importance_ratio, log_ratio, masked
from dovetail.registry import declares
from dovetail_loss.policy_loss._clipped import ratio_metrics
from dovetail_loss.policy_loss._score import weighted_score


@declares(on_policy_gradient=True, surrogate=True)
def topr(
    logps: Float[Array, "seq token"],
    old_logps: Float[Array, "seq token"],
    advantages: Float[Array, "seq token"],
    mask: Bool[Array, "seq token"],
) -> tuple[Float[Array, "seq token"], dict[str, Float[Array, "seq token"]]]:
    """Tapered off-policy REINFORCE: successes are always reinforced, failures suppressed only while they are likely.

        W_i = π(y_i|x) / π_old(y_i|x) = exp( ∑_t [log π - log π_old] )
        w   = 1 where A ≥ 0, min(W_i, 1) where A < 0
        L   = -sg[w]·A·log π

    with sg the stop-gradient. Le Roux et al. 2025, *Tapered off-policy REINFORCE* (arXiv:2503.14286), with the
    truncation to [0, 1] that the paper calls canonical.

    Deltas against `reinforce`:

    1. a failure is weighted by the ratio of its whole completion, at most 1: its gradient fades as it becomes unlikely,
       whereas REINFORCE would keep pushing its probability towards zero;
    2. a success has full weight, however unlikely it has become.

    Args:
        logps: log π, in nats, differentiable.
        old_logps: log π_old, in nats.
        advantages: A; in the paper, the reward minus a baseline.
        mask: policy tokens; the loss is zero elsewhere.

    Returns:
        The loss per token, and per-token metrics: `weight` (w), `ratio` (the token's) and `approx_kl` as in `ppo`.

    >>> new, old = jnp.log(jnp.array([[0.25]])), jnp.log(jnp.array([[0.5]]))
    >>> topr(new, old, -jnp.ones((1, 1)), jnp.ones((1, 1), bool))[1]["weight"].tolist()
    [[0.5]]
    """
    log_weight = jnp.minimum(jnp.sum(log_ratio(logps, old_logps, mask), axis=-1, keepdims=True), 0.0)
    failure = mask & (masked(advantages, mask) < 0)
    weight = jnp.where(failure, jnp.exp(log_weight), jnp.where(mask, 1.0, 0.0))
    loss = weighted_score(weight, logps, advantages, mask)
    x, ratio = importance_ratio(logps, old_logps, mask)
    return loss, {"weight": jax.lax.stop_gradient(weight)} | ratio_metrics(x, ratio, mask)
