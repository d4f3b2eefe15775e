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
    """Log-probability of each of the `tokens`: its logit minus the log-sum-exp over the vocabulary.

        log π(y) = z_y - log ∑_v exp(z_v),   ∂ log π(y) / ∂z_v = 1[v = y] - π(v)

    The gradient is written out: differentiating the gather and the log-sum-exp step by step keeps twice the memory.
    The logits arrive divided by the sampling temperature, in float32.

    >>> logps(jnp.zeros((1, 4)), jnp.array([2])).round(3)
    Array([-1.386], dtype=float32)
    """
    return _logps(logits, tokens)


def entropy(logits: Float[Array, "*batch vocab"]) -> Float[Array, "*batch"]:
    """Entropy of the next-token distribution in nats: log-sum-exp of the logits minus their mean under the softmax.

        H = log ∑_v exp(z_v) - ∑_v π(v)·z_v,   ∂H / ∂z_v = -π(v)·(log π(v) + H)

    >>> entropy(jnp.zeros((1, 4))).round(3)
    Array([1.386], dtype=float32)
    """
    return _entropy(logits)


@jax.custom_vjp
def _logps(logits: Array, tokens: Array) -> Array:
    return _logps_forward(logits, tokens)[0]


def _logps_forward(logits: Array, tokens: Array) -> tuple[Array, tuple[Array, Array, Array]]:
    normaliser = jax.nn.logsumexp(logits, axis=-1)
    chosen = jnp.take_along_axis(logits, tokens[..., None], axis=-1)[..., 0]
    return chosen - normaliser, (logits, tokens, normaliser)


def _logps_backward(kept: tuple[Array, Array, Array], cotangent: Array) -> tuple[Array, None]:
    logits, tokens, normaliser = kept
    # a comparison with every id fuses with the exponential; a scatter would be one more pass over the logits
    chosen = jax.lax.broadcasted_iota(tokens.dtype, logits.shape, logits.ndim - 1) == tokens[..., None]
    slope = chosen.astype(logits.dtype) - jnp.exp(logits - normaliser[..., None])
    return cotangent[..., None] * slope, None


_logps.defvjp(_logps_forward, _logps_backward)


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
