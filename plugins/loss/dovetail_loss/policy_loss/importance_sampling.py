"""Policy loss `importance_sampling`: the surrogate objective without clipping."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from dovetail.arrays import importance_ratio, masked
from dovetail.registry import declares
from dovetail_loss.policy_loss._clipped import ratio_metrics


@declares(on_policy_gradient=True)
def importance_sampling(
    logps: Float[Array, "seq token"],
    old_logps: Float[Array, "seq token"],
    advantages: Float[Array, "seq token"],
    mask: Bool[Array, "seq token"],
) -> tuple[Float[Array, "seq token"], dict[str, Float[Array, "seq token"]]]:
    """The importance-weighted advantage: unbiased, but without a trust region.

        L = -A·r,  r = π(a|s) / π_old(a|s)

    Kakade and Langford 2002, *Approximately optimal approximate reinforcement learning*; Schulman et al. 2017,
    *Proximal policy optimization algorithms*, equation 6. Tinker's loss of that name.

    Delta against `ppo`:

    1. no clipping: the gradient is r·A·∇ log π however far the token has moved.

    Args:
        logps: log π, in nats, differentiable.
        old_logps: log π_old, in nats.
        advantages: A.
        mask: policy tokens; the loss is zero elsewhere.

    Returns:
        The loss per token, and `ratio` and `approx_kl` as in `ppo`.

    Departures:
        The log-ratio is bounded to ±20 (gradient zero beyond). Tinker uses the sampler's log-probabilities as those of
        the old policy.

    >>> one = jnp.ones((1, 1))
    >>> loss, _ = importance_sampling(jnp.log(0.6 * one), jnp.log(0.4 * one), one, one > 0)
    >>> loss.tolist()
    [[-1.5]]
    """
    x, ratio = importance_ratio(logps, old_logps, mask)
    loss = jnp.where(mask, -masked(advantages, mask) * ratio, 0.0)
    return loss, ratio_metrics(x, ratio, mask)
