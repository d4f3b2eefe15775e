"""Correction `sequence_mask_tis`: token weights, in completions whose mean ratio is in range."""

from __future__ import annotations

from typing import Annotated

import jax.numpy as jnp
from annotated_types import Ge, Gt
from jaxtyping import Array, Bool, Float

from dovetail.arrays import log_ratio
from dovetail_loss.correction._bounds import outside
from dovetail_loss.correction._corrected import Corrected, corrected
from dovetail_loss.correction._ratio import ratio


def sequence_mask_tis(
    old_logps: Float[Array, "seq token"],
    rollout_logps: Float[Array, "seq token"],
    mask: Bool[Array, "seq token"],
    *,
    lower: Annotated[float, Ge(0)] = 0.5,
    upper: Annotated[float, Gt(0)] = 5.0,
    truncate_at: Annotated[float, Gt(0)] | None = None,
    count_rejected: bool = False,
) -> Corrected:
    """Sequence-masked importance sampling: completions are rejected by their mean ratio, tokens weighted by their own.

        s_i  = exp( (1/|y_i|)·∑_t [log π - log μ] )
        w_it = min(π(a|s) / μ(a|s), C) where α ≤ s_i ≤ β, else rejected

    NeMo RL's and OpenRLHF's `seq-mask-tis`.

    Deltas against `tis_token`:

    1. a completion whose geometric mean is out of range is rejected as a whole;
    2. in a completion that is kept, the weights are bounded only if C is set.

    Args:
        old_logps: log π, in nats, by the trainer's forward pass at collection.
        rollout_logps: log μ, in nats, as the sampler reports it.
        mask: policy tokens.
        lower: α, in units of the ratio; the defaults of 0.5 and 5 are OpenRLHF's.
        upper: β.
        truncate_at: C; None for no bound, as in NeMo RL and OpenRLHF despite the name.
        count_rejected: whether rejected tokens stay in the mask, with weight zero. They then count in the baseline
            of their group, in the lengths over which the loss is averaged, and in terms that the weights do not
            multiply, such as KL and entropy; otherwise they count nowhere.

    Returns:
        The weights, and the mask without the rejected tokens.

    Departures:
        The log-ratio is bounded to ±20. In NeMo RL and OpenRLHF a rejected completion has weight zero and still counts;
        here only with `count_rejected`.

    >>> old, sampled = jnp.log(jnp.array([[0.4, 0.9], [0.1, 0.1]])), jnp.log(jnp.array([[0.5, 0.9], [0.9, 0.3]]))
    >>> weights, kept = sequence_mask_tis(old, sampled, jnp.ones((2, 2), bool))
    >>> jnp.allclose(weights, jnp.array([[0.8, 1.0], [0.0, 0.0]])).item(), kept[:, 0].tolist()
    (True, [True, False])
    """
    x = log_ratio(old_logps, rollout_logps, mask)
    weights = ratio(x, mask, "token")
    weights = weights if truncate_at is None else jnp.minimum(weights, truncate_at)
    kept = mask & ~outside(ratio(x, mask, "geometric"), lower, upper)
    return corrected(mask, weights, kept, count_rejected=count_rejected)
