"""Field `logps`: log-probabilities of the tokens over the whole vocabulary."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


def logps(logits: Float[Array, "*batch vocab"], tokens: Int[Array, "*batch"]) -> Float[Array, "*batch"]:
    """Log-probability of each of the `tokens`: its logit minus the log-sum-exp over the vocabulary.

        log π(y) = z_y - log ∑_v exp(z_v),   ∂ log π(y) / ∂z_v = 1[v = y] - π(v)

    The result is in nats. The gradient is written out: differentiating the gather and the log-sum-exp step by step
    would keep twice the memory. The logits are in float32 and already divided by the sampling temperature.

    >>> import numpy as np
    >>> np.asarray(logps(jnp.zeros((1, 4)), jnp.array([2])), float).round(3).tolist()
    [-1.386]
    """
    return _logps(logits, tokens)


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
