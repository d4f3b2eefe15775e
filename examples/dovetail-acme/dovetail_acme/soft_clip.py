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

    >>> new, old, true = jnp.array([[-1.0]]), jnp.array([[-1.5]]), jnp.array([[True]])
    >>> round(soft_clip(new, old, jnp.array([[3.0]]), true, temperature=2.0).item(), 4)  # x = ½: -3·tanh(1)/2
    -1.1424
    """
    x = masked(logps, mask) - masked(old_logps, mask)
    return jnp.where(mask, -masked(advantages, mask) * jnp.tanh(temperature * x) / temperature, 0.0)
