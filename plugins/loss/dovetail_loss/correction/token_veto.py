"""Correction `token_veto`: reject completions with a token that is extremely unlikely under the trainer."""

from __future__ import annotations

from typing import Annotated

import jax.numpy as jnp
from annotated_types import Gt
from jaxtyping import Array, Bool, Float

from dovetail.arrays import log_ratio
from dovetail_loss.correction._bounds import without_catastrophe
from dovetail_loss.correction._corrected import Corrected, corrected


def token_veto(
    old_logps: Float[Array, "seq token"],
    rollout_logps: Float[Array, "seq token"],
    mask: Bool[Array, "seq token"],
    *,
    threshold: Annotated[float, Gt(0)] = 1e-4,
    count_rejected: bool = False,
) -> Corrected:
    """Token veto: a single catastrophic token rejects its completion; the others have weight 1.

        completion i is rejected if min_t π(a|s) / μ(a|s) < τ

    verl's former `rollout_token_veto_threshold`, with its usual value of 1e-4.

    Args:
        old_logps: log π, in nats, by the trainer's forward pass at collection.
        rollout_logps: log μ, in nats, as the sampler reports it.
        mask: policy tokens.
        threshold: τ > 0, in units of the ratio.
        count_rejected: whether rejected tokens stay in the mask, with weight zero. They then count in the baseline
            of their group, in the lengths over which the loss is averaged, and in terms that the weights do not
            multiply, such as KL and entropy; otherwise they count nowhere.

    Returns:
        Weights of one, and the mask without the rejected tokens.

    Departures:
        verl combines the veto with its weights: `train.correction = ['tis_token', 'token_veto']`, or `tis_reject` with
        the parameter `veto`.

    >>> old, sampled = jnp.log(jnp.array([[0.4, 1e-6], [0.1, 0.1]])), jnp.log(jnp.array([[0.5, 0.9], [0.9, 0.3]]))
    >>> _, kept = token_veto(old, sampled, jnp.ones((2, 2), bool))
    >>> kept.tolist()
    [[False, False], [True, True]]
    """
    x = log_ratio(old_logps, rollout_logps, mask)
    kept = without_catastrophe(x, mask, threshold)
    return corrected(mask, jnp.ones_like(x), kept, count_rejected=count_rejected)
