"""Field `kl_cov_tokens`: the tokens that KL-Cov penalises."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Interval
from jaxtyping import Array, Bool, Float

from dovetail_loss.field._rank import covariance, first, number_of


def kl_cov_tokens(
    old_logps: Float[Array, "seq token"],
    advantages: Float[Array, "seq token"],
    mask: Bool[Array, "seq token"],
    *,
    fraction: Annotated[float, Interval(ge=0, le=1)] = 2e-4,
) -> Bool[Array, "seq token"]:
    """The tokens with the highest covariance of log-probability and advantage.

        c = (A - mean A)·(log π_old - mean log π_old)
        the max(⌊fraction·N⌋, 1) tokens with the largest c

    over the N policy tokens of the mini-batch. Cui et al. 2025, *The entropy mechanism of reinforcement learning
    for reasoning language models* (arXiv:2505.22617).

    Args:
        old_logps: log π_old, in nats.
        advantages: A.
        mask: policy tokens.
        fraction: of the policy tokens; 0 selects none.

    Returns:
        True where a token is selected.

    Departures:
        As in `clip_cov_tokens`.

    >>> import jax.numpy as jnp
    >>> kl_cov_tokens(jnp.array([[-1.0, -5.0]]), jnp.array([[3.0, -2.0]]), jnp.ones((1, 2), bool)).tolist()
    [[True, False]]
    """
    return first(-covariance(old_logps, advantages, mask), mask, number_of(mask, fraction))
