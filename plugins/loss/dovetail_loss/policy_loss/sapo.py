"""Policy loss `sapo`: a smooth gate in place of clipping."""

from __future__ import annotations

from typing import Annotated

import jax
import jax.numpy as jnp
from annotated_types import Gt
from jaxtyping import Array, Bool, Float

from dovetail.arrays import Level, importance_ratio, masked
from dovetail.registry import declares
from dovetail_loss.policy_loss._clipped import ratio_metrics


@declares(on_policy_gradient=True)
def sapo(
    logps: Float[Array, "seq token"],
    old_logps: Float[Array, "seq token"],
    advantages: Float[Array, "seq token"],
    mask: Bool[Array, "seq token"],
    *,
    tau_pos: Annotated[float, Gt(0)] = 1.0,
    tau_neg: Annotated[float, Gt(0)] = 1.05,
    level: Level = "token",
) -> tuple[Float[Array, "seq token"], dict[str, Float[Array, "seq token"]]]:
    """Soft adaptive policy optimisation: far from the old policy, a token's gradient fades instead of being clipped.

        r    = π(a|s) / π_old(a|s)
        f(r) = (4/τ)·σ(τ·(r - 1)),  τ = τ_pos where A > 0, else τ_neg
        L    = -A·f(r)

    with σ the logistic function; f'(1) = 1. Gao et al. 2025, *Soft adaptive policy optimization*
    (arXiv:2511.20347).

    Deltas against `ppo`:

    1. no clipping and no maximum. The gate f'(r) = 4·σ·(1-σ) is 1 at r = 1 and falls on both sides. The factor of
       ∇ log π is r·f'(r): it is also 1 at r = 1, but continues to rise, to a maximum where τ·r·tanh(τ(r-1)/2) = 1
       (1.57 at r = 2.06 for τ = 1), before it falls to zero;
    2. tokens with A < 0, whose update affects the whole vocabulary, fade faster: τ_neg > τ_pos.

    Args:
        logps: log π, in nats, differentiable.
        old_logps: log π_old, in nats.
        advantages: A.
        mask: policy tokens; the loss is zero elsewhere.
        tau_pos: τ_pos > 0, the inverse width of the gate.
        tau_neg: τ_neg.
        level: 'sequence' for the completion's geometric-mean ratio in place of the token's (TRL's
            `importance_sampling_level`).

    Returns:
        The loss per token, and per-token metrics: `gate`, the weight f'(r), and `ratio` and `approx_kl` as in
        `ppo`.

    Departures:
        The log-ratio is bounded to ±20, as in verl.

    >>> one = jnp.ones((1, 1))
    >>> loss, metrics = sapo(0 * one, 0 * one, one, one > 0)
    >>> loss.tolist(), metrics["gate"].tolist()
    ([[-2.0]], [[1.0]])
    """
    log_ratio, ratio = importance_ratio(logps, old_logps, mask, level)
    advantages = masked(advantages, mask)
    tau = jnp.where(advantages > 0, tau_pos, tau_neg).astype(ratio.dtype)
    openness = jax.nn.sigmoid(tau * (ratio - 1.0))
    gate = jax.lax.stop_gradient(jnp.where(mask, 4.0 * openness * (1.0 - openness), 0.0))
    loss = jnp.where(mask, -advantages * 4.0 / tau * openness, 0.0)
    return loss, {"gate": gate} | ratio_metrics(log_ratio, ratio, mask)
