"""Policy loss `ppo`: the clipped surrogate, with an optional dual clip."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Ge, Gt
from jaxtyping import Array, Bool, Float

from dovetail.arrays import Level, importance_ratio
from dovetail.registry import declares
from dovetail_loss.policy_loss._clipped import clipped_surrogate, ratio_metrics


@declares(on_policy_gradient=True, pessimistic=True)
def ppo(
    logps: Float[Array, "seq token"],
    old_logps: Float[Array, "seq token"],
    advantages: Float[Array, "seq token"],
    mask: Bool[Array, "seq token"],
    *,
    epsilon_low: Annotated[float, Ge(0)] = 0.2,
    epsilon_high: Annotated[float, Ge(0)] = 0.2,
    clip_c: Annotated[float, Gt(1)] | None = None,
    level: Level = "token",
) -> tuple[Float[Array, "seq token"], dict[str, Float[Array, "seq token"]]]:
    """Proximal policy optimisation: a pessimistic bound on the policy gradient's objective.

        r = π(a|s) / π_old(a|s)
        L = max(-A·r, -A·clip(r, 1-ε_low, 1+ε_high))
        L = min(L, -A·c)  where A < 0                      (dual clip)

    Schulman et al. 2017, *Proximal policy optimization algorithms*, equation 7; dual clip: Ye et al. 2020,
    *Mastering complex control in MOBA games with deep reinforcement learning*, section on dual-clip PPO.
    A larger ε_high is DAPO's clip-higher (Yu et al. 2025, equation 10).

    Args:
        logps: log π, in nats, differentiable.
        old_logps: log π_old, in nats.
        advantages: A.
        mask: policy tokens; the loss is zero elsewhere.
        epsilon_low: ε_low, in units of the ratio.
        epsilon_high: ε_high.
        clip_c: c > 1, an upper bound of the ratio where A < 0, so that a single token that was very unlikely under the
            old policy cannot dominate the gradient; None for no such bound. 3 is usual. The two-sided clipping of
            INTELLECT-2, TRL's `delta`, is the same bound: with δ > 1+ε_high it takes effect only where A < 0.
        level: 'sequence' for the completion's geometric-mean ratio in place of the token's (TRL's
            `importance_sampling_level`); with a clip range to match, that is `gspo`.

    Returns:
        The loss per token, and per-token metrics: `clip_fraction` and its parts `clip_fraction_high` (A > 0)
        and `clip_fraction_low` (A < 0), `dual_clip_fraction` where `clip_c` is set, `ratio`, and `approx_kl`
        = log π_old - log π.

    Departures:
        The log-ratio is bounded to ±20 (gradient zero beyond), as in verl, so that nothing overflows. In verl's
        `vanilla` the dual clip is always on, with c = 3; here it is off by default. verl multiplies the loss by
        importance weights inside the loss function; here the engine does (`is_weights`).

    >>> import jax.numpy as jnp
    >>> new, old = jnp.log(jnp.array([[0.6]])), jnp.log(jnp.array([[0.4]]))
    >>> loss, metrics = ppo(new, old, jnp.ones((1, 1)), jnp.ones((1, 1), bool))
    >>> import numpy as np
    >>> np.asarray(loss, float).round(4).tolist(), metrics["clip_fraction"].tolist()
    ([[-1.2]], [[1.0]])
    """
    log_ratio, ratio = importance_ratio(logps, old_logps, mask, level)
    loss, metrics = clipped_surrogate(
        ratio, advantages, mask, epsilon_low=epsilon_low, epsilon_high=epsilon_high, clip_c=clip_c
    )
    return loss, metrics | ratio_metrics(log_ratio, ratio, mask)
