"""Field `entropy`: the entropy of the next-token distribution at each position."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def entropy(logits: Float[Array, "*batch vocab"]) -> Float[Array, "*batch"]:
    """Entropy of the next-token distribution in nats: log-sum-exp of the logits minus their mean under the softmax.

        H = log ∑_v exp(z_v) - ∑_v π(v)·z_v,   ∂H / ∂z_v = -π(v)·(log π(v) + H)

    The gradient is written out, so that only the logits, the log-sum-exp and H are kept for the backward pass. The
    logits are in float32 and already divided by the sampling temperature.

    >>> import numpy as np
    >>> np.asarray(entropy(jnp.zeros((1, 4))), float).round(3).tolist()
    [1.386]
    """
    return _entropy(logits)


@jax.custom_vjp
def _entropy(logits: Array) -> Array:
    return _entropy_forward(logits)[0]


def _entropy_forward(logits: Array) -> tuple[Array, tuple[Array, Array, Array]]:
    normaliser = jax.nn.logsumexp(logits, axis=-1)
    value = normaliser - jnp.sum(jnp.exp(logits - normaliser[..., None]) * logits, axis=-1)
    return value, (logits, normaliser, value)


def _entropy_backward(kept: tuple[Array, Array, Array], cotangent: Array) -> tuple[Array]:
    logits, normaliser, value = kept
    log_probabilities = logits - normaliser[..., None]
    return (-cotangent[..., None] * jnp.exp(log_probabilities) * (log_probabilities + value[..., None]),)


_entropy.defvjp(_entropy_forward, _entropy_backward)
