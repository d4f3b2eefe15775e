"""Loss mask `top_entropy`: keep the tokens with the highest entropy."""

from __future__ import annotations

from typing import Annotated

import jax.numpy as jnp
from annotated_types import Interval
from jaxtyping import Array, Bool, Float

from dovetail.arrays import full_precision


def top_entropy(
    old_entropy: Float[Array, "seq token"],
    mask: Bool[Array, "seq token"],
    *,
    fraction: Annotated[float, Interval(ge=0, le=1)] = 0.2,
) -> Bool[Array, "seq token"]:
    """The 80/20 rule: train only on the fifth of the policy tokens with the highest entropy.

        H_it ≥ Q,  Q the (1 - fraction)-quantile of H over the policy tokens

    interpolated linearly between tokens. Wang et al. 2025, *Beyond the 80/20 rule: high-entropy minority tokens drive
    effective reinforcement learning for LLM reasoning* (arXiv:2506.01939), on top of DAPO (`train.policy_loss = 'ppo'`
    with `epsilon_high = 0.28`).

    Args:
        old_entropy: H of the policy at collection, in nats.
        mask: policy tokens of the whole batch.
        fraction: 0.2 in the paper; 1 selects every token.

    Returns:
        True where a token is selected. The others still count in the aggregation's mean, as in the paper.

    Departures:
        The paper and TRL use the current policy's entropy, and TRL ranks one micro-batch across its workers. Here the
        entropy at collection is ranked over the whole batch, so that the result does not depend on any split.

    >>> top_entropy(jnp.array([[0.1, 0.9, 0.2, 0.3, 0.4]]), jnp.ones((1, 5), bool)).tolist()
    [[False, True, False, False, False]]
    """
    entropy = full_precision(old_entropy)
    ordered = jnp.sort(jnp.where(mask, entropy, jnp.inf).ravel())
    last = jnp.maximum(jnp.sum(mask), 1) - 1
    place = (1.0 - fraction) * last.astype(entropy.dtype)
    below = jnp.floor(place)
    low = below.astype(int)
    high = jnp.minimum(low + 1, last)
    threshold = ordered[low] + (place - below) * (ordered[high] - ordered[low])
    return mask & (entropy >= threshold)
