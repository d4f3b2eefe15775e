"""KL estimator `full`: the divergence itself."""

from __future__ import annotations

from jaxtyping import Array, Float

from dovetail.arrays import full_precision
from dovetail.registry import declares


@declares(non_negative=True, unbiased_gradient=True, unbiased_value=True)
def full(full_kl: Float[Array, "seq token"]) -> Float[Array, "seq token"]:
    """The divergence over the whole vocabulary, which is not an estimate: value and gradient are exact.

        KL(π || π_ref) = ∑_v π(v|s)·[ log π(v|s) - log π_ref(v|s) ]

    *Unbiased in value and gradient*, given the sampled states s. It costs a forward pass of the reference in every
    update, including the projection to the vocabulary, whereas the estimators read log-probabilities from a single pass
    at collection. The memory it needs depends on the size of a chunk of positions, not of the batch.

    Args:
        full_kl: the field of that name, in nats.

    Returns:
        The field as it is.

    >>> import jax.numpy as jnp
    >>> full(jnp.array([[0.25]])).tolist()
    [[0.25]]
    """
    return full_precision(full_kl)
