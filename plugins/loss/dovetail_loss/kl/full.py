"""KL estimator `full`: the divergence itself, summed over the vocabulary."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from dovetail.registry import declares
from dovetail_loss._arrays import full_precision


def full_kl(logits: Float[Array, "*batch vocab"], ref_logits: Float[Array, "*batch vocab"]) -> Float[Array, "*batch"]:
    """The divergence of the next-token distribution from the reference's.

        KL(π || π_ref) = ∑_v π(v|s)·[ log π(v|s) - log π_ref(v|s) ]

    A quantity of the forward pass: both models' logits meet in chunks of positions, and neither is kept.

    Args:
        logits: of the policy, in float32, divided by the sampling temperature; differentiable.
        ref_logits: of the reference at the same positions.

    Returns:
        Nats at every position; zero or above.

    >>> round(full_kl(jnp.log(jnp.array([0.5, 0.5])), jnp.log(jnp.array([0.25, 0.75]))).item(), 4)
    0.1438
    """
    logps, ref_logps = (jax.nn.log_softmax(full_precision(x), axis=-1) for x in (logits, ref_logits))
    return jnp.sum(jnp.exp(logps) * (logps - ref_logps), axis=-1)


@declares(non_negative=True, unbiased_gradient=True, unbiased_value=True)
def full(full_kl: Float[Array, "seq token"]) -> Float[Array, "seq token"]:
    """The divergence over the whole vocabulary, no estimate: no variance at a position, exact value and gradient.

        KL(π || π_ref) = ∑_v π(v|s)·[ log π(v|s) - log π_ref(v|s) ]

    *Unbiased in value and gradient*, given the states s that were sampled. It costs a forward pass of the reference in
    every update, where the estimators read its log-probabilities from one at collection, and its projection to the
    vocabulary; memory grows with a chunk of positions, not with the batch.

    Args:
        full_kl: the field of that name, in nats.

    Returns:
        The field as it is.

    >>> full(jnp.array([[0.25]]))
    Array([[0.25]], dtype=float32)
    """
    return full_precision(full_kl)
