"""Correction `tis_token`: truncated importance sampling, token by token."""

from __future__ import annotations

from typing import Annotated

import jax.numpy as jnp
from annotated_types import Gt
from jaxtyping import Array, Bool, Float

from dovetail.arrays import log_ratio
from dovetail_loss.correction._corrected import Corrected, corrected
from dovetail_loss.correction._ratio import normalized, ratio


def tis_token(
    old_logps: Float[Array, "seq token"],
    rollout_logps: Float[Array, "seq token"],
    mask: Bool[Array, "seq token"],
    *,
    upper: Annotated[float, Gt(0)] = 2.0,
    normalize: bool = False,
) -> Corrected:
    """Truncated importance sampling: each token is weighted by its own ratio to the sampler, up to a bound.

        w_it = min(π(a|s) / μ(a|s), C)

    Yao et al. 2025, *Your efficient RL framework secretly brings you off-policy RL training* (TIS); truncation:
    Ionides 2008, *Truncated importance sampling*. Token ratios ignore that π and μ visit different states, so the
    estimate is biased but has a low variance; `tis_sequence` is the opposite.

    Args:
        old_logps: log π, in nats, by the trainer's forward pass at collection.
        rollout_logps: log μ, in nats, as the sampler reports it.
        mask: policy tokens.
        upper: C, in units of the ratio.
        normalize: divide the weights by their mean over the batch's tokens, after the truncation.

    Returns:
        The weights, and the unchanged mask.

    Departures:
        The log-ratio is bounded to ±20, as in verl. verl's `rollout_is = "token"` and TRL's `token_truncate` are
        this function; TRL's default bound is 3. verl's mean adds 1e-8 to the number of tokens.

    >>> old, sampled = jnp.log(jnp.array([[0.4, 0.9]])), jnp.log(jnp.array([[0.5, 0.3]]))
    >>> weights, _ = tis_token(old, sampled, jnp.ones((1, 2), bool))
    >>> jnp.allclose(weights, jnp.array([[0.4 / 0.5, 2.0]])).item()
    True
    """
    x = log_ratio(old_logps, rollout_logps, mask)
    weights = jnp.minimum(ratio(x, mask, "token"), upper)
    return corrected(mask, normalized(weights, mask, "token") if normalize else weights, mask)
