"""Correction `tis_sequence`: truncated importance sampling of whole completions."""

from __future__ import annotations

from typing import Annotated

import jax.numpy as jnp
from annotated_types import Gt
from jaxtyping import Array, Bool, Float

from dovetail.arrays import log_ratio
from dovetail_loss.correction._corrected import Corrected, corrected
from dovetail_loss.correction._ratio import normalized, ratio


def tis_sequence(
    old_logps: Float[Array, "seq token"],
    rollout_logps: Float[Array, "seq token"],
    mask: Bool[Array, "seq token"],
    *,
    upper: Annotated[float, Gt(0)] = 2.0,
    normalize: bool = False,
) -> Corrected:
    """Truncated importance sampling: every token is weighted by the ratio of its completion, up to a bound.

        w_it = min(π(y_i|x) / μ(y_i|x), C),   π(y|x) / μ(y|x) = exp( ∑_t [log π - log μ] )

    Liu, Li et al. 2025, *When speed kills stability: demystifying RL collapse from the training-inference mismatch*;
    truncation: Ionides 2008, *Truncated importance sampling*.

    Delta against `tis_token`:

    1. the ratio is that of the whole completion. Without the truncation it is unbiased; its variance grows with
       the length, and at thousands of tokens most weights are 0 or C.

    Args:
        old_logps: log π, in nats, by the trainer's forward pass at collection.
        rollout_logps: log μ, in nats, as the sampler reports it.
        mask: policy tokens.
        upper: C, in units of the ratio.
        normalize: divide the weights by their mean over the batch's completions, after the truncation.

    Returns:
        The weights, and the unchanged mask.

    Departures:
        The sum of log-ratios is bounded to ±20, as in verl. verl's `rollout_is = "sequence"` and TRL's
        `sequence_truncate` are this function; TRL's default bound is 3. verl's mean adds 1e-8 to lengths.

    >>> old, sampled = jnp.log(jnp.array([[0.4, 0.9]])), jnp.log(jnp.array([[0.5, 0.6]]))
    >>> weights, _ = tis_sequence(old, sampled, jnp.ones((1, 2), bool))
    >>> jnp.allclose(weights, 0.4 * 0.9 / (0.5 * 0.6)).item()
    True
    """
    x = log_ratio(old_logps, rollout_logps, mask)
    weights = jnp.minimum(ratio(x, mask, "sequence"), upper)
    return corrected(mask, normalized(weights, mask, "sequence") if normalize else weights, mask)
