"""Policy loss `soft_clip`: the log-ratio squashed instead of clipped."""

from __future__ import annotations

from typing import Annotated

import dovetail
import jax.numpy as jnp
from annotated_types import Gt
from dovetail.arrays import masked
from jaxtyping import Array, Bool, Float


@dovetail.declares(on_policy_gradient=True)
def soft_clip(
    logps: Float[Array, "seq token"],
    old_logps: Float[Array, "seq token"],
    advantages: Float[Array, "seq token"],
    mask: Bool[Array, "seq token"],
    *,
    temperature: Annotated[float, Gt(0)] = 2.0,
) -> Float[Array, "seq token"]:
    """A policy gradient that fades as a token's probability moves away from what it was at collection.

        L_it = -A_it·tanh(τ·x_it) / τ,  x = log π(a|s) - log π_old(a|s)
        ∂L/∂x = -A·cosh⁻²(τ·x)

    Against `ppo`: no token is cut off from one update to the next, and the bound holds in both directions whatever the
    sign of A, so that a token that has moved the wrong way gets no stronger pull back than one that has moved the right
    way.

    Args:
        logps: log π, in nats, differentiable.
        old_logps: log π_old, in nats.
        advantages: A.
        mask: policy tokens; the loss is zero elsewhere, whatever stands there.
        temperature: τ, in 1/nats. At |x| = 1/τ the gradient has fallen to 42 %.

    Returns:
        The loss per token, which `train.loss_agg` averages.

    >>> new, old, a = (jnp.array([[x, jnp.nan]]) for x in (-1.0, -1.5, 3.0))
    >>> loss = soft_clip(new, old, a, jnp.array([[True, False]]), temperature=4.0)  # x = ½: -3·tanh(2)/4
    >>> import numpy as np
    >>> np.asarray(loss + 0.0, float).round(4).tolist()
    [[-0.723, 0.0]]
    """
    x = masked(logps, mask) - masked(old_logps, mask)
    return -masked(advantages, mask) * jnp.tanh(temperature * x) / temperature
