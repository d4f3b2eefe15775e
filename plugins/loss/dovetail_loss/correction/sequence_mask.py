"""Correction `sequence_mask`: importance sampling without the completions whose ratio is out of range."""

from __future__ import annotations

from typing import Annotated

import jax.numpy as jnp
from annotated_types import Ge, Gt
from jaxtyping import Array, Bool, Float

from dovetail.arrays import log_ratio
from dovetail_loss.correction._bounds import outside
from dovetail_loss.correction._corrected import Corrected, corrected
from dovetail_loss.correction._ratio import normalized, ratio


def sequence_mask(
    old_logps: Float[Array, "seq token"],
    rollout_logps: Float[Array, "seq token"],
    mask: Bool[Array, "seq token"],
    *,
    lower: Annotated[float, Ge(0)] | None = None,
    upper: Annotated[float, Gt(0)] = 2.0,
    normalize: bool = False,
    count_rejected: bool = False,
) -> Corrected:
    """Masked importance sampling (MIS): a completion is weighted by its ratio, or rejected if that is out of range.

        w_it = ρ_i where α ≤ ρ_i ≤ C, else rejected,   ρ_i = exp( ∑_t [log π - log μ] )

    Liu, Li et al. 2025, *When speed kills stability: demystifying RL collapse from the training-inference mismatch*,
    which has no lower bound.

    Delta against `tis_sequence`:

    1. a completion beyond the bound is rejected instead of getting weight C: with such a ratio it is more likely an
       artefact of the sampler than something the policy would write.

    Args:
        old_logps: log π, in nats, by the trainer's forward pass at collection.
        rollout_logps: log μ, in nats, as the sampler reports it.
        mask: policy tokens.
        lower: α, in units of the ratio; None for no lower bound.
        upper: C.
        normalize: divide the weights by their mean over the batch's completions that count.
        count_rejected: whether rejected tokens stay in the mask, with weight zero. They then count in the baseline
            of their group, in the lengths over which the loss is averaged, and in terms that the weights do not
            multiply, such as KL and entropy; otherwise they count nowhere.

    Returns:
        The weights, and the mask without the rejected tokens.

    Departures:
        The sum of log-ratios is bounded to ±20, as in verl. In TRL's `sequence_mask` (its default bound is 3)
        and in verl's `rollout_is = "sequence"` with two thresholds, a rejected completion has weight zero and still
        counts; here only with `count_rejected`. verl raises an error if none is in range, and adds 1e-8 in its mean.

    >>> old, sampled = jnp.log(jnp.array([[0.4, 0.9], [0.9, 0.9]])), jnp.log(jnp.array([[0.5, 0.9], [0.3, 0.3]]))
    >>> weights, kept = sequence_mask(old, sampled, jnp.ones((2, 2), bool))
    >>> jnp.allclose(weights, jnp.array([[0.8, 0.8], [0.0, 0.0]])).item(), kept[:, 0].tolist()
    (True, [True, False])
    """
    x = log_ratio(old_logps, rollout_logps, mask)
    weights = ratio(x, mask, "sequence")
    kept = mask & ~outside(weights, lower, upper)
    weights = jnp.where(kept, weights, 0.0)
    if normalize:
        weights = normalized(weights, mask if count_rejected else kept, "sequence")
    return corrected(mask, weights, kept, count_rejected=count_rejected)
