"""The result of every correction: weights, and the mask to keep."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

Corrected = tuple[Float[Array, "seq token"], Bool[Array, "seq token"]]
"""`(is_weights, kept mask)`."""


def corrected(
    mask: Bool[Array, "seq token"],
    weights: Float[Array, "seq token"],
    kept: Bool[Array, "seq token"],
    *,
    count_rejected: bool = False,
) -> Corrected:
    """Return a correction's result.

    Args:
        mask: policy tokens as sampled.
        weights: they are replaced by zero outside `kept`.
        kept: tokens that are not rejected.
        count_rejected: whether rejected tokens, with weight zero, stay in the mask.

    >>> mask = jnp.ones((1, 2), bool)
    >>> corrected(mask, jnp.ones((1, 2)), jnp.array([[True, False]]))
    (Array([[1., 0.]], dtype=float32), Array([[ True, False]], dtype=bool))
    """
    return jnp.where(kept, weights, 0.0), mask if count_rejected else kept
