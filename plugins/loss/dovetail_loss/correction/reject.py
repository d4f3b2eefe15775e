"""Correction `reject`: exclude tokens or completions that are too far from the sampler."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from dovetail.arrays import log_ratio
from dovetail_loss.correction._bounds import Divergence, Over, within
from dovetail_loss.correction._corrected import Corrected, corrected


def reject(
    old_logps: Float[Array, "seq token"],
    rollout_logps: Float[Array, "seq token"],
    mask: Bool[Array, "seq token"],
    *,
    divergence: Divergence = "k3",
    over: Over = "mean",
    low: float | None = None,
    high: float = 0.01,
    count_rejected: bool = False,
) -> Corrected:
    """Rejection of tokens or completions on which trainer and sampler disagree too much; the others have weight 1.

        x  = log π - log μ
        k1 = -x,   k2 = x²/2,   k3 = eˣ - 1 - x
        kept where low ≤ D ≤ high,   D = k_t, ∑_t k_t, (1/|y|)·∑_t k_t, or every k_t of the completion

    Estimators: Schulman 2020, *Approximating KL divergence*; as a criterion: Liu, Li et al. 2025, *When speed kills
    stability: demystifying RL collapse from the training-inference mismatch*. The mean treats all lengths alike,
    whereas the sum rejects long completions first. With k1, deviations of opposite sign cancel; with k2 and k3 they do
    not.

    Args:
        old_logps: log π, in nats, by the trainer's forward pass at collection.
        rollout_logps: log μ, in nats, as the sampler reports it.
        mask: policy tokens.
        divergence: D, the estimator of KL(μ‖π) from one token.
        over: what the bounds apply to: each token separately, or completions by the `sum` or `mean` of D over their
            tokens, or by their extreme token (`max`: one token out of bounds rejects the completion).
        low: in nats; None for -high. It matters only for k1; k2 and k3 are never negative.
        high: in nats.
        count_rejected: whether rejected tokens stay in the mask, with weight zero. They then count in the baseline
            of their group, in the lengths over which the loss is averaged, and in terms that the weights do not
            multiply, such as KL and entropy; otherwise they count nowhere.

    Returns:
        Weights of one, and the mask without the rejected tokens.

    Departures:
        verl's `rollout_rs` (`token_k1`, `seq_mean_k3`, ...) with all bounds in nats: its bounds of k1 are ratios
        μ/π, so that its "0.9_1.1" is low = log 0.9, high = log 1.1. `max` exists for k1, too. The log-ratio of a
        token is bounded to ±20, as in verl. verl accepts several criteria at once, this function only one.

    >>> old, sampled = jnp.array([[-1.0, -1.0], [-1.0, -2.0]]), jnp.array([[-1.1, -1.0], [-1.0, -1.0]])
    >>> _, kept = reject(old, sampled, jnp.ones((2, 2), bool))
    >>> kept[:, 0].tolist()
    [True, False]
    """
    x = log_ratio(old_logps, rollout_logps, mask)
    kept = within(x, mask, divergence=divergence, over=over, low=low, high=high)
    return corrected(mask, jnp.ones_like(x), kept, count_rejected=count_rejected)
