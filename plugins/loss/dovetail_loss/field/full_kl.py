"""Field `full_kl`: the divergence from the reference, summed over the vocabulary."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from dovetail.arrays import full_precision


def full_kl(logits: Float[Array, "*batch vocab"], ref_logits: Float[Array, "*batch vocab"]) -> Float[Array, "*batch"]:
    """The divergence of the next-token distribution from the reference's.

        KL(π || π_ref) = ∑_v π(v|s)·[ log π(v|s) - log π_ref(v|s) ]

    Computed in the forward pass: the logits of both models exist for one chunk of positions at a time.

    Args:
        logits: of the policy, in float32, divided by the sampling temperature; differentiable.
        ref_logits: of the reference at the same positions.

    Returns:
        The divergence in nats at every position, non-negative.

    >>> round(full_kl(jnp.log(jnp.array([0.5, 0.5])), jnp.log(jnp.array([0.25, 0.75]))).item(), 4)
    0.1438
    """
    logps, ref_logps = (jax.nn.log_softmax(full_precision(x), axis=-1) for x in (logits, ref_logits))
    return jnp.sum(jnp.exp(logps) * (logps - ref_logps), axis=-1)
