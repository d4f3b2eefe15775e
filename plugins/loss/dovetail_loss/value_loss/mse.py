"""Value loss `mse`: half the squared error."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from dovetail.arrays import masked


def mse(
    values: Float[Array, "seq token"], returns: Float[Array, "seq token"], mask: Bool[Array, "seq token"]
) -> Float[Array, "seq token"]:
    """Half the squared error of the critic.

        L = ½·(V - R)²

    Sutton and Barto 2018, *Reinforcement learning*, equation 9.1, with the usual ½ that makes the gradient V
    - R.

    Args:
        values: V, the critic now, differentiable.
        returns: R, the regression target, in the same units as rewards.
        mask: policy tokens; the loss is zero elsewhere.

    >>> mse(jnp.array([[3.0]]), jnp.array([[1.0]]), jnp.array([[True]])).tolist()
    [[2.0]]
    """
    return jnp.where(mask, 0.5 * jnp.square(masked(values, mask) - masked(returns, mask)), 0.0)
