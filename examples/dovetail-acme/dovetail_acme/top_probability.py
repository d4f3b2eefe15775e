"""Field `top_probability`: how sure the policy is of its likeliest token."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def top_probability(logits: Float[Array, "*batch vocab"]) -> Float[Array, "*batch"]:
    """The probability of the likeliest token.

        max_v π_v = exp( max_v z_v - log ∑_v exp(z_v) )

    `top_probability` in a signature is that of the policy being trained, `old_top_probability` of the policy at
    collection. It is computed inside the forward pass, some positions at a time, and only if somebody reads it.

    Args:
        logits: z, in float32, divided by the sampling temperature.

    Returns:
        A number for each position, between 1/|vocab| and 1.

    >>> round(top_probability(jnp.log(jnp.array([1.0, 2.0, 5.0]))).item(), 4)  # 5 of 1 + 2 + 5
    0.625
    """
    return jnp.exp(jnp.max(logits, axis=-1) - jax.nn.logsumexp(logits, axis=-1))
