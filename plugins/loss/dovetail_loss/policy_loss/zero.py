"""Policy loss `zero`: no policy loss, for runs that train only on other terms."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from dovetail.registry import declares


@declares(expected_failures={"learns_from_policy_tokens": "it is the loss from which nothing is learnt"})
def zero(mask: Bool[Array, "seq token"]) -> Float[Array, "seq token"]:
    """Switch the policy loss off, so that `train.loss_terms`, KL penalty and entropy bonus are the whole objective.

        L = 0

    For pure distillation or preference learning. It reads neither log-probabilities nor advantages, so it needs no
    forward pass. `train.advantage` still runs, although its result is not used: choose one that does not need a critic.

    Args:
        mask: policy tokens, which give the result its shape.

    Returns:
        Zero for every token.

    >>> zero(jnp.ones((1, 2), bool)).tolist()
    [[0.0, 0.0]]
    """
    return jnp.zeros(mask.shape)
