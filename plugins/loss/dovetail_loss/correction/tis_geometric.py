"""Correction `tis_geometric`: truncated importance sampling by the geometric mean of a completion's ratios."""

from __future__ import annotations

from typing import Annotated

import jax.numpy as jnp
from annotated_types import Gt
from jaxtyping import Array, Bool, Float

from dovetail.arrays import log_ratio
from dovetail_loss.correction._corrected import Corrected, corrected
from dovetail_loss.correction._ratio import normalized, ratio


def tis_geometric(
    old_logps: Float[Array, "seq token"],
    rollout_logps: Float[Array, "seq token"],
    mask: Bool[Array, "seq token"],
    *,
    upper: Annotated[float, Gt(0)] = 2.0,
    normalize: bool = False,
) -> Corrected:
    """Truncated importance sampling: every token is weighted by its completion's mean ratio, up to a bound.

        w_it = min(s_i, C),   s_i = (π(y_i|x) / μ(y_i|x))^(1/|y_i|) = exp( (1/|y_i|)·∑_t [log π - log μ] )

    The ratio of GSPO (Zheng et al. 2025, *Group sequence policy optimization*, equation 7) between trainer and
    sampler.

    Delta against `tis_sequence`:

    1. the geometric mean over the tokens in place of the product. It does not grow with the length, so that one bound
       suits all lengths; but it is no longer an importance weight, so that the estimate is biased whatever the bound.

    Args:
        old_logps: log π, in nats, by the trainer's forward pass at collection.
        rollout_logps: log μ, in nats, as the sampler reports it.
        mask: policy tokens.
        upper: C, in units of the ratio.
        normalize: divide the weights by their mean over the batch's completions, after the truncation.

    Returns:
        The weights, and the unchanged mask.

    Departures:
        The mean log-ratio is bounded to ±20.

    >>> old, sampled = jnp.log(jnp.array([[0.4, 0.9]])), jnp.log(jnp.array([[0.1, 0.9]]))
    >>> weights, _ = tis_geometric(old, sampled, jnp.ones((1, 2), bool), upper=3.0)
    >>> jnp.allclose(weights, (0.4 / 0.1) ** 0.5).item()
    True
    """
    x = log_ratio(old_logps, rollout_logps, mask)
    weights = jnp.minimum(ratio(x, mask, "geometric"), upper)
    return corrected(mask, normalized(weights, mask, "geometric") if normalize else weights, mask)
