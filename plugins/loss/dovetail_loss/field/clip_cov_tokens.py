"""Field `clip_cov_tokens`: the tokens whose gradient Clip-Cov removes."""

from __future__ import annotations

from typing import Annotated

import jax
import jax.numpy as jnp
from annotated_types import Interval
from jaxtyping import Array, Bool, Float, Key

from dovetail_loss.field._rank import covariance, first, number_of


def clip_cov_tokens(
    old_logps: Float[Array, "seq token"],
    advantages: Float[Array, "seq token"],
    mask: Bool[Array, "seq token"],
    key: Key[Array, ""],
    *,
    fraction: Annotated[float, Interval(ge=0, le=1)] = 2e-4,
    lower: float = 1.0,
    upper: float = 5.0,
) -> Bool[Array, "seq token"]:
    """A few tokens, drawn at random from those with a high covariance of log-probability and advantage.

        c = (A - mean A)·(log π_old - mean log π_old)
        max(⌊fraction·N⌋, 1) tokens, drawn at random from { lower < c < upper }

    over the N policy tokens of the mini-batch, or the whole set if it is smaller. This covariance drives the change of
    entropy: reinforcing likely tokens with a high advantage reduces it. Cui et al. 2025, *The entropy mechanism of
    reinforcement learning for reasoning language models* (arXiv:2505.22617).

    Args:
        old_logps: log π_old, in nats.
        advantages: A.
        mask: policy tokens.
        key: determines the draw, which depends on a token's row and position, but not on the padded width.
        fraction: of the policy tokens; 0 selects none.
        lower: lower end of the range, exclusive, in nats times advantage.
        upper: upper end, exclusive.

    Returns:
        True where a token is selected.

    Departures:
        The paper and verl use log π of the policy being trained. Here the tokens are selected on the whole mini-batch,
        before it is split, with the policy at collection. At the first update this makes no difference.

    >>> old, advantages, true = jnp.array([[-1.0, -5.0]]), jnp.array([[2.0, -2.0]]), jnp.ones((1, 2), bool)
    >>> clip_cov_tokens(old, advantages, true, jax.random.key(0), fraction=1.0).tolist()
    [[True, True]]
    """
    cov = covariance(old_logps, advantages, mask)
    eligible = mask & (cov > lower) & (cov < upper)
    rows, columns = mask.shape
    luck = jax.vmap(lambda row: jax.random.uniform(jax.random.fold_in(key, row), (columns,)))(jnp.arange(rows))
    return first(luck, eligible, number_of(mask, fraction))
