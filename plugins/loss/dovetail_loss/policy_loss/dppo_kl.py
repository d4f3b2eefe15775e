"""Policy loss `dppo_kl`: a trust region in the Kullback-Leibler divergence."""

from __future__ import annotations

from typing import Annotated

import jax
import jax.numpy as jnp
from annotated_types import Ge, Gt
from jaxtyping import Array, Bool, Float

from dovetail.arrays import log_ratio
from dovetail.registry import declares
from dovetail_loss.policy_loss._divergence import masked_score, probability

TINY = 1e-8
"""Added to the probability of all other tokens, so that its logarithm is finite; verl's."""


@declares(on_policy_gradient=True, surrogate=True)
def dppo_kl(
    logps: Float[Array, "seq token"],
    old_logps: Float[Array, "seq token"],
    advantages: Float[Array, "seq token"],
    mask: Bool[Array, "seq token"],
    *,
    epsilon_low: Annotated[float, Ge(0)] = 0.05,
    epsilon_high: Annotated[float, Ge(0)] = 0.05,
    max_ratio: Annotated[float, Gt(0)] = 20.0,
) -> tuple[Float[Array, "seq token"], dict[str, Float[Array, "seq token"]]]:
    """Divergence PPO with the binary KL divergence: `dppo_tv` with a different measure of how far a token has moved.

        D = π_old·log(π_old/π) + (1-π_old)·log((1-π_old)/(1-π))
        M = [D ≤ ε_high or π ≤ π_old] where A > 0, [D ≤ ε_low or π ≥ π_old] elsewhere
        L = -M·sg[min(r, c)]·A·log π(a|s),  r = π(a|s) / π_old(a|s)

    with sg the stop-gradient. D is KL(π_old || π) if all tokens other than the sampled one are merged into one. Qi et
    al. 2026, *Rethinking the trust region in LLM reinforcement learning* (arXiv:2602.04879).

    Delta against `dppo_tv`:

    1. the divergence, which constrains a token with a probability near zero or one more tightly than total variation.

    Args:
        logps: log π, in nats, differentiable.
        old_logps: log π_old, in nats.
        advantages: A.
        mask: policy tokens; the loss is zero elsewhere.
        epsilon_low: ε_low, in nats; 0.05 in the authors' scripts.
        epsilon_high: ε_high, in nats.
        max_ratio: c; a low bound biases the gradient.

    Returns:
        The loss per token, and the metrics of `dppo_tv`.

    Departures:
        As in `dppo_tv`.

    >>> new, old = jnp.log(jnp.array([[0.9, 0.002]])), jnp.log(jnp.array([[0.6, 0.001]]))
    >>> loss, metrics = dppo_kl(new, old, jnp.ones((1, 2)), jnp.ones((1, 2), bool))
    >>> metrics["clip_fraction"].tolist()
    [[1.0, 0.0]]
    """
    new, old = probability(logps, mask), probability(old_logps, mask)
    moved = -jax.lax.stop_gradient(log_ratio(logps, old_logps, mask))
    divergence = old * moved + (1.0 - old) * jnp.log((1.0 - old + TINY) / (1.0 - new + TINY))
    return masked_score(
        logps,
        old_logps,
        advantages,
        mask,
        too_high=(divergence > epsilon_high) & (new > old),
        too_low=(divergence > epsilon_low) & (new < old),
        max_ratio=max_ratio,
    )
