"""Policy loss `ipo`: importance sampling on tokens whose probability has not moved far from the sampler's."""

from __future__ import annotations

from typing import Annotated

import jax.numpy as jnp
from annotated_types import Ge
from jaxtyping import Array, Bool, Float

from dovetail.arrays import importance_ratio, indicator, log_ratio, masked
from dovetail.registry import declares
from dovetail_loss.policy_loss._clipped import ratio_metrics
from dovetail_loss.policy_loss._divergence import probability


@declares(excludes=("correction",), on_policy_gradient=True, regularised=True)
def ipo(
    logps: Float[Array, "seq token"],
    rollout_logps: Float[Array, "seq token"],
    advantages: Float[Array, "seq token"],
    mask: Bool[Array, "seq token"],
    *,
    epsilon: Annotated[float, Ge(0)] = 0.3,
    kl_coef: Annotated[float, Ge(0)] = 1e-3,
) -> tuple[Float[Array, "seq token"], dict[str, Float[Array, "seq token"]]]:
    """INTELLECT policy optimisation: a two-sided trust region in probability, and a quadratic penalty.

        x = log π(a|s) - log μ(a|s)
        L = -[|π - μ| ≤ ε]·A·e^x + τ·x²

    with μ the policy as the sampler reports it. Prime Intellect, *prime-rl*, loss type `ipo`; unrelated to the
    preference-learning loss of the same name.

    Deltas against `dppo_tv`:

    1. the ratio is to the sampler's own log-probabilities, so that no forward pass of the old policy is needed;
    2. a token outside the trust region is dropped whatever the sign of A;
    3. the gradient flows through the ratio, which has no bound;
    4. the penalty τ·x² pulls every token back, including the dropped ones.

    Args:
        logps: log π, in nats, differentiable.
        rollout_logps: log μ, in nats.
        advantages: A.
        mask: policy tokens; the loss is zero elsewhere.
        epsilon: ε, in units of probability; 0.3 in prime-rl's guide, 0.1 in older releases.
        kl_coef: τ, in units of the advantage per nat².

    Returns:
        The loss per token, and per-token metrics: `clip_fraction` (dropped tokens), `penalty`, `ratio` and
        `approx_kl` = log μ - log π.

    Departures:
        The log-ratio in the exponent is bounded to ±20.

    >>> new, sampled = jnp.log(jnp.array([[0.6, 0.6]])), jnp.log(jnp.array([[0.4, 0.1]]))
    >>> loss, _ = ipo(new, sampled, jnp.ones((1, 2)), jnp.ones((1, 2), bool), kl_coef=0.0)
    >>> loss.tolist()
    [[-1.5, 0.0]]
    """
    x, ratio = importance_ratio(logps, rollout_logps, mask)
    moved = jnp.abs(probability(logps, mask) - probability(rollout_logps, mask))
    dropped = mask & (moved > epsilon)
    penalty = kl_coef * jnp.square(log_ratio(logps, rollout_logps, mask))
    surrogate = jnp.where(dropped, 0.0, -masked(advantages, mask) * ratio)
    loss = jnp.where(mask, surrogate + penalty, 0.0)
    metrics = {"clip_fraction": indicator(dropped, loss), "penalty": penalty}
    return loss, metrics | ratio_metrics(x, ratio, mask)
