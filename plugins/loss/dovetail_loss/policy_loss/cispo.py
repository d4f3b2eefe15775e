"""Policy loss `cispo`: REINFORCE under a clipped importance weight."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Ge, Gt
from jaxtyping import Array, Bool, Float

from dovetail.arrays import Level, clip, importance_ratio, indicator
from dovetail.registry import declares
from dovetail_loss.policy_loss._clipped import ratio_metrics
from dovetail_loss.policy_loss._score import weighted_score


@declares(on_policy_gradient=True, surrogate=True)
def cispo(
    logps: Float[Array, "seq token"],
    old_logps: Float[Array, "seq token"],
    advantages: Float[Array, "seq token"],
    mask: Bool[Array, "seq token"],
    *,
    epsilon_low: Annotated[float, Ge(0)] = 1.0,
    epsilon_high: Annotated[float, Ge(0)] = 4.0,
    max_ratio: Annotated[float, Gt(0)] | None = None,
    level: Level = "token",
) -> tuple[Float[Array, "seq token"], dict[str, Float[Array, "seq token"]]]:
    """Clipped importance-sampling policy optimisation: the weight is clipped, but no token is dropped.

        r = π(a|s) / π_old(a|s)
        L = -sg[clip(r, 1-ε_low, 1+ε_high)]·A·log π(a|s)

    with sg the stop-gradient. MiniMax 2025, *MiniMax-M1* (arXiv:2506.13585).

    Deltas against `ppo`:

    1. the ratio is a weight, a constant for the gradient, which flows through log π alone;
    2. a token beyond the range keeps a gradient, of the size of the bound, whatever the sign of A;
    3. the range is wide: the paper sets no lower bound (ε_low = 1) and tunes the upper one.

    Args:
        logps: log π, in nats, differentiable.
        old_logps: log π_old, in nats.
        advantages: A.
        mask: policy tokens; the loss is zero elsewhere.
        epsilon_low: ε_low, in units of the ratio; with 1 or more there is no lower bound.
        epsilon_high: ε_high; 4 bounds the weight by 5, as ScaleRL (Khatri et al. 2025, arXiv:2510.13786) does.
        max_ratio: the upper bound itself instead of 1+ε_high: what TRL calls `epsilon_high`.
        level: 'sequence' for the completion's geometric-mean ratio in place of the token's (TRL's
            `importance_sampling_level`).

    Returns:
        The loss per token, and per-token metrics: `clip_fraction` and its parts `clip_fraction_high` and
        `clip_fraction_low` (the weight met a bound), `ratio` and `approx_kl` as in `ppo`.

    Departures:
        The log-ratio is bounded to ±20, as in verl. verl's default range is 0.2 on both sides; TRL has no lower bound,
        and its metric counts only tokens with A > 0.

    >>> import jax
    >>> import jax.numpy as jnp
    >>> one = jnp.ones((1, 1))
    >>> found = jax.grad(lambda new: cispo(new, 0 * one, one, one > 0, epsilon_high=0.2)[0].sum())(jnp.log(3 * one))
    >>> round(found.item(), 4)
    -1.2
    """
    log_ratio, ratio = importance_ratio(logps, old_logps, mask, level)
    low, high = 1.0 - epsilon_low, 1.0 + epsilon_high if max_ratio is None else max_ratio
    above, below = mask & (ratio > high), mask & (ratio < low)
    loss = weighted_score(clip(ratio, low, high), logps, advantages, mask)
    metrics = {"clip_fraction": above | below, "clip_fraction_high": above, "clip_fraction_low": below}
    found = {name: indicator(where, loss) for name, where in metrics.items()}
    return loss, found | ratio_metrics(log_ratio, ratio, mask)
