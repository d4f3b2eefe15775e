"""Correction `icepop`: importance sampling without the tokens whose ratio is out of range."""

from __future__ import annotations

from typing import Annotated

import jax.numpy as jnp
from annotated_types import Ge, Gt
from jaxtyping import Array, Bool, Float

from dovetail.arrays import log_ratio
from dovetail_loss.correction._bounds import outside
from dovetail_loss.correction._corrected import Corrected, corrected
from dovetail_loss.correction._ratio import normalized, ratio


def icepop(
    old_logps: Float[Array, "seq token"],
    rollout_logps: Float[Array, "seq token"],
    mask: Bool[Array, "seq token"],
    *,
    lower: Annotated[float, Ge(0)] | None = 0.5,
    upper: Annotated[float, Gt(0)] = 5.0,
    normalize: bool = False,
) -> Corrected:
    """IcePop: each token is weighted by its ratio to the sampler, or by zero if that is out of range.

        w_it = r_it where α ≤ r_it ≤ β, else 0,   r_it = π(a|s) / μ(a|s)

    Ling Team 2025, *Every step evolves: scaling reinforcement learning for trillion-scale thinking model*
    (arXiv:2510.18855), whose range is from 0.5 to 5.

    Delta against `tis_token`:

    1. a token beyond the bound gets weight zero instead of C, and there is a lower bound.

    Args:
        old_logps: log π, in nats, by the trainer's forward pass at collection.
        rollout_logps: log μ, in nats, as the sampler reports it.
        mask: policy tokens.
        lower: α, in units of the ratio; None for no lower bound.
        upper: β.
        normalize: divide the weights by their mean over the batch's tokens, including those with weight zero.

    Returns:
        The weights, and the unchanged mask. As in the paper, a dropped token still counts in the length over which
        the loss is averaged; `reject` with `over = "token"` takes it out of that as well.

    Departures:
        The log-ratio is bounded to ±20, as in verl. verl's `rollout_is = "token"` with the threshold "0.5_5.0" is
        this function, as is TRL's `token_mask`, which by default has no lower bound and an upper one of 3. verl raises
        an error if no token is in range; here all weights are zero. verl adds 1e-8 to the number of tokens in the mean.

    >>> old, sampled = jnp.log(jnp.array([[0.4, 0.9, 0.1]])), jnp.log(jnp.array([[0.5, 0.1, 0.5]]))
    >>> weights, _ = icepop(old, sampled, jnp.ones((1, 3), bool))
    >>> jnp.allclose(weights, jnp.array([[0.4 / 0.5, 0.0, 0.0]])).item()
    True
    """
    x = log_ratio(old_logps, rollout_logps, mask)
    weights = ratio(x, mask, "token")
    weights = jnp.where(outside(weights, lower, upper), 0.0, weights)
    return corrected(mask, normalized(weights, mask, "token") if normalize else weights, mask)
