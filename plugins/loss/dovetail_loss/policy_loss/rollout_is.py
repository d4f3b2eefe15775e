"""Policy loss `rollout_is`: REINFORCE weighted by the ratio to the sampler, if that is within a range."""

from __future__ import annotations

from typing import Annotated

import jax.numpy as jnp
from annotated_types import Ge
from jaxtyping import Array, Bool, Float

from dovetail.arrays import importance_ratio, indicator
from dovetail.registry import declares
from dovetail_loss.policy_loss._clipped import ratio_metrics
from dovetail_loss.policy_loss._score import weighted_score


@declares(excludes=("correction",), on_policy_gradient=True, surrogate=True)
def rollout_is(
    logps: Float[Array, "seq token"],
    rollout_logps: Float[Array, "seq token"],
    advantages: Float[Array, "seq token"],
    mask: Bool[Array, "seq token"],
    *,
    epsilon_low: Annotated[float, Ge(0)] = 0.5,
    epsilon_high: Annotated[float, Ge(0)] = 4.0,
) -> tuple[Float[Array, "seq token"], dict[str, Float[Array, "seq token"]]]:
    """Importance sampling directly from the sampler: a single ratio for staleness and numerical mismatch.

        r = π(a|s) / μ(a|s)
        w = r where 1-ε_low < r < 1+ε_high, else 0
        L = -sg[w]·A·log π(a|s)

    with sg the stop-gradient and μ the policy as the sampler reports it. SkyRL's `rollout_is`; the function w is
    IcePop's (Ling Team 2025, *Every step evolves*, arXiv:2510.18855), on the current policy.

    Deltas against `cispo`:

    1. the ratio is to the sampler's own log-probabilities, so that no forward pass of the old policy is needed;
    2. a token outside the range is dropped, whereas `cispo` clips its weight.

    Args:
        logps: log π, in nats, differentiable.
        rollout_logps: log μ, in nats.
        advantages: A.
        mask: policy tokens; the loss is zero elsewhere.
        epsilon_low: ε_low, in units of the ratio; 0.5 and 4 are IcePop's range, from 0.5 to 5.
        epsilon_high: ε_high.

    Returns:
        The loss per token, and per-token metrics: `clip_fraction` and its parts `clip_fraction_high` and
        `clip_fraction_low` of dropped tokens, `ratio` and `approx_kl` = log μ - log π.

    Departures:
        The log-ratio is bounded to ±20, as in SkyRL.

    >>> new, sampled = jnp.log(jnp.array([[0.6, 0.6]])), jnp.log(jnp.array([[0.5, 0.1]]))
    >>> rollout_is(new, sampled, jnp.ones((1, 2)), jnp.ones((1, 2), bool))[1]["clip_fraction"].tolist()
    [[0.0, 1.0]]
    """
    x, ratio = importance_ratio(logps, rollout_logps, mask)
    above, below = mask & (ratio >= 1.0 + epsilon_high), mask & (ratio <= 1.0 - epsilon_low)
    loss = weighted_score(jnp.where(above | below, 0.0, ratio), logps, advantages, mask)
    metrics = {"clip_fraction": above | below, "clip_fraction_high": above, "clip_fraction_low": below}
    found = {name: indicator(where, loss) for name, where in metrics.items()}
    return loss, found | ratio_metrics(x, ratio, mask)
