"""Fields that every run may ask for, as plain components of kind `field`.

A field that reads `logits` or `hidden_states` is a *quantity* of a forward pass: the engine computes it position by
position, in chunks, so that no [seq, token, vocab] array is ever kept. Its bare name is the policy being trained
(with gradient, for
losses); `old_NAME` and `ref_NAME` are the policy at collection and the reference.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


def logps(logits: Float[Array, "*batch vocab"], tokens: Int[Array, "*batch"]) -> Float[Array, "*batch"]:
    """Log-probability of each token: logits at the token minus the log-sum-exp over the vocabulary.

    The logits arrive divided by the sampling temperature, in float32.

    >>> logps(jnp.zeros((1, 4)), jnp.array([2])).round(3)
    Array([-1.386], dtype=float32)
    """
    chosen = jnp.take_along_axis(logits, tokens[..., None], axis=-1)[..., 0]
    return chosen - jax.nn.logsumexp(logits, axis=-1)


def entropy(logits: Float[Array, "*batch vocab"]) -> Float[Array, "*batch"]:
    """Entropy of the next-token distribution in nats: log-sum-exp of the logits minus their mean under the softmax.

    >>> entropy(jnp.zeros((1, 4))).round(3)
    Array([1.386], dtype=float32)
    """
    return jax.nn.logsumexp(logits, axis=-1) - jnp.sum(jax.nn.softmax(logits, axis=-1) * logits, axis=-1)
