"""Correction `token_veto`: completions without a token that the trainer would all but never write."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from dovetail_loss._ratio import log_ratio
from dovetail_loss.correction._bounds import without_catastrophe
from dovetail_loss.correction._diagnostics import Corrected, corrected


def token_veto(
    old_logps: Float[Array, "seq token"],
    rollout_logps: Float[Array, "seq token"],
    mask: Bool[Array, "seq token"],
    *,
    threshold: float = 1e-4,
    count_rejected: bool = False,
) -> Corrected:
    """Token veto: one catastrophic token rejects its completion; the others weigh 1.

        completion i is rejected where min_t π(a|s) / μ(a|s) < τ

    verl's former `rollout_token_veto_threshold`, with the 1e-4 that its users set.

    Args:
        old_logps: log π, in nats, by the trainer's forward pass at collection.
        rollout_logps: log μ, in nats, as the sampler reports it.
        mask: policy tokens.
        threshold: τ > 0, in units of the ratio.
        count_rejected: whether rejected tokens stay in the mask, with weight zero. They then count in the baseline
            of their group, in the lengths over which the loss is averaged, and in terms that the weights do not
            multiply, such as KL and entropy; else in nothing.

    Returns:
        Weights of one, the mask without what is rejected, and the metrics that every correction reports
        (`correction/...`).

    Departures:
        verl's veto comes on top of its weights; so it does in `tis_reject`, by its parameter `veto`.

    >>> old, sampled = jnp.log(jnp.array([[0.4, 1e-6], [0.1, 0.1]])), jnp.log(jnp.array([[0.5, 0.9], [0.9, 0.3]]))
    >>> (_, kept), _ = token_veto(old, sampled, jnp.ones((2, 2), bool))
    >>> kept
    Array([[False, False],
           [ True,  True]], dtype=bool)
    """
    x = log_ratio(old_logps, rollout_logps, mask)
    kept = without_catastrophe(x, mask, threshold)
    return corrected(x, mask, jnp.ones_like(x), kept, count_rejected=count_rejected)
