"""Policy loss `dro`: REINFORCE with a quadratic penalty on each token's log-ratio."""

from __future__ import annotations

from typing import Annotated

import jax.numpy as jnp
from annotated_types import Gt
from jaxtyping import Array, Bool, Float

from dovetail.arrays import importance_ratio, log_ratio, masked
from dovetail.registry import declares
from dovetail_loss.policy_loss._clipped import ratio_metrics


@declares(on_policy_gradient=True, regularised=True)
def dro(
    logps: Float[Array, "seq token"],
    old_logps: Float[Array, "seq token"],
    advantages: Float[Array, "seq token"],
    mask: Bool[Array, "seq token"],
    *,
    beta: Annotated[float, Gt(0)] = 0.1,
) -> tuple[Float[Array, "seq token"], dict[str, Float[Array, "seq token"]]]:
    """Direct reward optimisation, token by token: the policy gradient, with a quadratic pull to the old policy.

        x = log π(a|s) - log π_old(a|s)
        L = -A·log π(a|s) + ½·β·x²,  ∇L = -(A - β·x)·∇ log π(a|s)

    Richemond et al. 2024, *Offline regularised reinforcement learning for large language models alignment*
    (arXiv:2405.19107); the form that verl and Tinker share. `kimi` has the penalty on whole completions.

    Deltas against `ppo`:

    1. no importance ratio, so that data from any policy can be used; instead of being clipped, a token is pulled back,
       and has no gradient at x = A/β;
    2. no clip.

    Args:
        logps: log π, in nats, differentiable.
        old_logps: log π_old, in nats.
        advantages: A.
        mask: policy tokens; the loss is zero elsewhere.
        beta: β > 0, in units of the advantage per nat.

    Returns:
        The loss per token, and per-token metrics: `penalty`, `ratio` and `approx_kl` as in `ppo`.

    Departures:
        The paper learns a value function as the baseline; here the advantage may come from any estimator. verl has no
        default for β.

    >>> loss, _ = dro(jnp.array([[-1.0]]), jnp.array([[-3.0]]), jnp.ones((1, 1)), jnp.ones((1, 1), bool))
    >>> import numpy as np
    >>> np.asarray(loss, float).round(4).tolist()
    [[1.2]]
    """
    x, ratio = importance_ratio(logps, old_logps, mask)
    penalty = 0.5 * beta * jnp.square(log_ratio(logps, old_logps, mask))
    loss = jnp.where(mask, -masked(advantages, mask) * masked(logps, mask) + penalty, 0.0)
    return loss, {"penalty": penalty} | ratio_metrics(x, ratio, mask)
