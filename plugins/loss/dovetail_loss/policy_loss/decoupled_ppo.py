"""Policy loss `decoupled_ppo`: PPO with a trust region around one policy, on samples of another."""

from __future__ import annotations

from typing import Annotated

import jax
import jax.numpy as jnp
from annotated_types import Ge, Gt
from jaxtyping import Array, Bool, Float

from dovetail.arrays import importance_ratio
from dovetail.registry import declares
from dovetail_loss.policy_loss.ppo import ppo


@declares(excludes=("correction",), on_policy_gradient=True, pessimistic=True)
def decoupled_ppo(
    logps: Float[Array, "seq token"],
    old_logps: Float[Array, "seq token"],
    rollout_logps: Float[Array, "seq token"],
    advantages: Float[Array, "seq token"],
    mask: Bool[Array, "seq token"],
    *,
    epsilon_low: Annotated[float, Ge(0)] = 0.2,
    epsilon_high: Annotated[float, Ge(0)] = 0.2,
    clip_c: Annotated[float, Gt(1)] | None = None,
) -> tuple[Float[Array, "seq token"], dict[str, Float[Array, "seq token"]]]:
    """The decoupled objective: the trust region is around a recent policy, while another one drew the samples.

        L = (π_old/μ)·max(-A·r, -A·clip(r, 1-ε_low, 1+ε_high)),  r = π(a|s) / π_old(a|s)

    with μ the policy as the sampler reports it (the paper's behaviour policy) and π_old that at collection by the
    trainer (its proximal policy). Hilton et al. 2022, *Batch size-invariance for policy optimization*
    (arXiv:2110.00641); Fu et al. 2025, *AReaL* (arXiv:2505.24298), on language models.

    Delta against `ppo`:

    1. the weight π_old/μ, a constant for the gradient: `ppo` with plain importance weights as its correction. It
       therefore excludes other corrections; for truncated or masked weights, use `ppo` and a correction.

    Args:
        logps: log π, in nats, differentiable.
        old_logps: log π_old, in nats.
        rollout_logps: log μ, in nats.
        advantages: A.
        mask: policy tokens; the loss is zero elsewhere.
        epsilon_low: ε_low, in units of the ratio.
        epsilon_high: ε_high.
        clip_c: as in `ppo`.

    Returns:
        The loss per token, the metrics of `ppo`, and `weight`: π_old/μ.

    Departures:
        The log of the weight is bounded to ±20. AReaL drops tokens whose weight exceeds a cap; here none are dropped.

    >>> new, sampled, true = jnp.log(jnp.array([[0.5]])), jnp.log(jnp.array([[0.25]])), jnp.ones((1, 1), bool)
    >>> decoupled_ppo(new, new, sampled, jnp.ones((1, 1)), true)[0].tolist()
    [[-2.0]]
    """
    loss, metrics = ppo(
        logps, old_logps, advantages, mask, epsilon_low=epsilon_low, epsilon_high=epsilon_high, clip_c=clip_c
    )
    weight = jax.lax.stop_gradient(jnp.where(mask, importance_ratio(old_logps, rollout_logps, mask)[1], 0.0))
    return weight * loss, metrics | {"weight": weight}
