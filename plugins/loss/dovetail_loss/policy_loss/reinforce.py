"""Policy loss `reinforce`: the policy gradient itself."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from dovetail.arrays import masked
from dovetail.registry import declares


@declares(on_policy_gradient=True)
def reinforce(
    logps: Float[Array, "seq token"],
    advantages: Float[Array, "seq token"],
    mask: Bool[Array, "seq token"],
) -> Float[Array, "seq token"]:
    """REINFORCE: the score function times the advantage.

        L = -A·log π(a|s),  ∇L = -A·∇ log π(a|s)

    Williams 1992, *Simple statistical gradient-following algorithms for connectionist reinforcement learning*.
    GPG (Chu et al. 2025, *GPG: a simple and strong reinforcement learning baseline for model reasoning*) is the
    same loss on group-relative advantages.

    At a ratio of one, every importance-weighted loss here has this gradient. With more than one update per collection
    the data is off-policy, which this loss does not correct for: use `ppo` or `importance_sampling` instead. The value
    of the loss does not measure progress.

    Args:
        logps: log π, in nats, differentiable.
        advantages: A.
        mask: policy tokens; the loss is zero elsewhere.

    Returns:
        The loss per token.

    >>> reinforce(jnp.array([[-0.5, -9.0]]), 2 * jnp.ones((1, 2)), jnp.array([[True, False]])).tolist()
    [[1.0, 0.0]]
    """
    return jnp.where(mask, -masked(advantages, mask) * masked(logps, mask), 0.0)
