"""Policy loss `vespo`: REINFORCE weighted by a smooth function of the whole completion's ratio."""

from __future__ import annotations

import math
from typing import Annotated

import jax
import jax.numpy as jnp
from annotated_types import Ge
from jaxtyping import Array, Bool, Float

from dovetail.arrays import LOG_RATIO_BOUND, clip, importance_ratio, masked
from dovetail.registry import declares
from dovetail_loss.policy_loss._clipped import ratio_metrics
from dovetail_loss.policy_loss._score import weighted_score

LOWEST_LOG_WEIGHT = math.log(1e-8)
"""Lower bound of the log of a completion's ratio, as in the authors' code."""


@declares(on_policy_gradient=True, surrogate=True)
def vespo(
    logps: Float[Array, "seq token"],
    old_logps: Float[Array, "seq token"],
    advantages: Float[Array, "seq token"],
    mask: Bool[Array, "seq token"],
    *,
    k_pos: Annotated[float, Ge(0)] = 2.0,
    lambda_pos: Annotated[float, Ge(0)] = 3.0,
    k_neg: Annotated[float, Ge(0)] = 3.0,
    lambda_neg: Annotated[float, Ge(0)] = 2.0,
) -> tuple[Float[Array, "seq token"], dict[str, Float[Array, "seq token"]]]:
    """Variational sequence-level soft policy optimisation: a completion's weight fades smoothly with its ratio.

        W_i  = π(y_i|x) / π_old(y_i|x) = exp( ∑_t [log π - log π_old] )
        φ(W) = W^k·e^(λ·(1-W))
        L_it = -sg[φ(W_i)]·A_it·log π_it

    with sg the stop-gradient; k and λ depend on the sign of A, with zero counting as positive. φ(1) = 1. Shen et al.
    2026, *VESPO: variational sequence-level soft policy optimization* (arXiv:2602.10693), section 3.4.

    Deltas against `gspo`:

    1. the ratio is the product over the completion's tokens, not its |y_i|-th root;
    2. it is a weight, a constant for the gradient, which flows through log π alone;
    3. no clipping: φ falls as W^k towards zero and exponentially towards infinity.

    Args:
        logps: log π, in nats, differentiable.
        old_logps: log π_old, in nats.
        advantages: A.
        mask: policy tokens; the loss is zero elsewhere.
        k_pos: k where A ≥ 0, the paper's c1.
        lambda_pos: λ where A ≥ 0, the paper's c2.
        k_neg: k where A < 0.
        lambda_neg: λ where A < 0.

    Returns:
        The loss per token, and per-token metrics: `weight` (φ), `ratio` (the token's) and `approx_kl` as in `ppo`.

    Departures:
        As in TRL, a token's log-ratio is bounded to ±20 and W to [1e-8, e²⁰]. TRL multiplies W by the importance
        weights for the sampler; here `is_weights` apply per token.

    >>> one = jnp.ones((1, 1))
    >>> loss, metrics = vespo(-one, -one, one, one > 0)
    >>> loss.tolist(), metrics["weight"].tolist()
    ([[1.0]], [[1.0]])
    """
    x, ratio = importance_ratio(logps, old_logps, mask)
    log_weight = clip(jnp.sum(x, axis=-1, keepdims=True), LOWEST_LOG_WEIGHT, LOG_RATIO_BOUND)
    positive = masked(advantages, mask) >= 0
    k = jnp.where(positive, k_pos, k_neg).astype(x.dtype)
    rate = jnp.where(positive, lambda_pos, lambda_neg).astype(x.dtype)
    weight = jnp.where(mask, jnp.exp(k * log_weight + rate * (1.0 - jnp.exp(log_weight))), 0.0)
    loss = weighted_score(weight, logps, advantages, mask)
    return loss, {"weight": jax.lax.stop_gradient(weight)} | ratio_metrics(x, ratio, mask)
