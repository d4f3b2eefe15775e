"""Policy loss `gmpo`: the geometric mean of clipped token ratios."""

from __future__ import annotations

from typing import Annotated

import jax.numpy as jnp
from annotated_types import Ge
from jaxtyping import Array, Bool, Float

from dovetail.arrays import LOG_RATIO_BOUND, clip, indicator, log_ratio, masked, mean_over_tokens
from dovetail.registry import declares
from dovetail_loss.policy_loss._clipped import ratio_metrics


@declares(pessimistic=True, averaged_by="sequence_mean_token_mean")
def gmpo(
    logps: Float[Array, "seq token"],
    old_logps: Float[Array, "seq token"],
    advantages: Float[Array, "seq token"],
    mask: Bool[Array, "seq token"],
    *,
    epsilon_low: Annotated[float, Ge(0)] = 0.4,
    epsilon_high: Annotated[float, Ge(0)] = 0.4,
) -> tuple[Float[Array, "seq token"], dict[str, Float[Array, "seq token"]]]:
    """Geometric-mean policy optimisation: a single outlying token barely changes the completion's ratio.

        x_it = log π - log π_old
        b_it = min(x_it, ε_high) where A_it > 0, max(x_it, -ε_low) where A_it < 0
        ρ_i  = exp( (1/|y_i|)·∑_t b_it )
        L_it = -A_it·ρ_i

    Zhao et al. 2025, *Geometric-mean policy optimization* (arXiv:2507.20673); its objective is this loss under
    `sequence_mean_token_mean`. A token with A = 0 counts with b = 0.

    Deltas against `gspo`:

    1. tokens are clipped separately *before* the mean, so that the tokens within the range keep their gradient; in
       `gspo` the mean is clipped, and a completion has a gradient either as a whole or not at all;
    2. the range is in units of the log-ratio, and wide: ratios from e^-0.4 to e^0.4 in the paper.

    Args:
        logps: log π, in nats, differentiable.
        old_logps: log π_old, in nats.
        advantages: A; one per completion in the paper. If they differ between tokens, each token's loss contributes to
            the gradient of ρ.
        mask: policy tokens; |y_i| is their number, and the loss is zero elsewhere.
        epsilon_low: ε_low, in nats.
        epsilon_high: ε_high, in nats.

    Returns:
        The loss per token, and per-token metrics as in `ppo`; `ratio` is ρ.

    Departures:
        log ρ is bounded from above by 20 (gradient zero beyond). verl and TRL average over completions whatever the
        aggregation; here the aggregation decides, and an empty completion adds nothing, whereas in TRL it adds -A. verl
        weights a completion by the geometric mean of its importance weights; here `is_weights` apply per token.

    >>> old, where = jnp.zeros((1, 2)), jnp.ones((1, 2), bool)
    >>> loss, metrics = gmpo(jnp.array([[0.2, 5.0]]), old, jnp.ones((1, 2)), where)
    >>> bool(jnp.allclose(loss, -jnp.exp(0.3))), metrics["clip_fraction"].tolist()
    (True, [[0.0, 1.0]])
    """
    x, advantages = log_ratio(logps, old_logps, mask), masked(advantages, mask)
    high, low = (advantages > 0) & (x > epsilon_high), (advantages < 0) & (x < -epsilon_low)
    inside = jnp.where(advantages != 0, x, 0.0)
    clipped = jnp.where(high, epsilon_high, jnp.where(low, -epsilon_low, inside)).astype(x.dtype)
    ratio = jnp.exp(clip(mean_over_tokens(clipped, mask), -jnp.inf, LOG_RATIO_BOUND))
    loss = jnp.where(mask, -advantages * ratio, 0.0)
    metrics = {"clip_fraction": high | low, "clip_fraction_high": high, "clip_fraction_low": low}
    found = {name: indicator(where, loss) for name, where in metrics.items()}
    return loss, found | ratio_metrics(x, jnp.broadcast_to(ratio, x.shape), mask)
