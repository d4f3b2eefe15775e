"""Policy loss `zero`: nothing, where other terms are all that is learnt from."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from dovetail.registry import declares


@declares(expected_failures={"learns_from_policy_tokens": "it is the loss from which nothing is learnt"})
def zero(mask: Bool[Array, "seq token"]) -> Float[Array, "seq token"]:
    """Switch the policy loss off, so that `train.loss_terms`, KL penalty and entropy bonus are the whole objective.

        L = 0

    For distillation or preference learning alone. It reads neither log-probabilities nor advantages, so it needs no
    forward pass. `train.advantage` still runs, on scores that are there anyway, and nothing reads its result: choose
    one that needs no critic.

    Args:
        mask: policy tokens, which give the result its shape.

    Returns:
        Zero for every token.

    >>> zero(jnp.ones((1, 2), bool))
    Array([[0., 0.]], dtype=float32)
    """
    return jnp.zeros(mask.shape)
