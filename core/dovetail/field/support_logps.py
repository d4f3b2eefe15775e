"""Field `support_logps`: log-probabilities of the tokens over the support that they were sampled from."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


def support_logps(
    logits: Float[Array, "*batch vocab"],
    tokens: Int[Array, "*batch"],
    support: Int[Array, "*batch candidate"],
) -> Float[Array, "*batch"]:
    """Log-probability of each of the `tokens` over the support of its draw: its logit minus the support's log-sum-exp.

        log π_S(y) = z_y - log ∑_{v∈S} exp(z_v)

    A sampler that draws from the 50 likeliest tokens reports probabilities that sum to one over those 50; the trainer's
    are comparable only over the same S. DeepSeek-AI 2025, *DeepSeek-V3.2*, section 3.1, "Keep Sampling Mask".

    Args:
        logits: in float32, already divided by the sampling temperature.
        tokens: y, the sampled ids.
        support: S, token ids; negative entries are padding. Where all are, the result is meaningless but finite.

    >>> logits = jnp.log(jnp.array([[0.4, 0.4, 0.2]]))
    >>> import numpy as np
    >>> np.asarray(support_logps(logits, jnp.array([1]), jnp.array([[0, 1, -1]])), float).round(3).tolist()
    [-0.693]
    """
    there = support >= 0
    candidates = jnp.take_along_axis(logits, jnp.maximum(support, 0), axis=-1)
    normaliser = jax.nn.logsumexp(
        jnp.where(there | ~jnp.any(there, axis=-1, keepdims=True), candidates, -jnp.inf), axis=-1
    )
    return jnp.take_along_axis(logits, tokens[..., None], axis=-1)[..., 0] - normaliser
