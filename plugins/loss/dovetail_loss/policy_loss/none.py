"""Policy loss `none`: nothing, where other terms are all that is learnt from."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from dovetail.registry import declares


@declares(expected_failures={"learns_from_policy_tokens": "it is the loss from which nothing is learnt"})
def none(mask: Bool[Array, "seq token"]) -> Float[Array, "seq token"]:
    """Switch the policy loss off: what `train.loss_terms`, KL and entropy bonus say is the whole objective.

        L = 0

    For distillation and preference learning alone. It reads neither log-probabilities nor advantages, so that no
    forward pass and no critic is there on its account; `train.advantage` is computed and read by nobody, and must not
    be one that needs a critic.

    Args:
        mask: policy tokens, for their number.

    Returns:
        Zero for every token.

    >>> none(jnp.ones((1, 2), bool))
    Array([[0., 0.]], dtype=float32)
    """
    return jnp.zeros(mask.shape)
