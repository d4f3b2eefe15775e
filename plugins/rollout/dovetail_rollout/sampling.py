"""The choice of the next token."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from dovetail_rollout.draw import draw
from dovetail_rollout.nucleus import nucleus


def sample(
    logits: Float[Array, "row vocab"],
    uniform: Float[Array, "row"],
    temperature: Float[Array, ""],
    top_p: Float[Array, ""] | None,
    top_k: int | None,
) -> tuple[Int[Array, "row"], Float[Array, "row"]]:
    """Choose a token per row, and report its log-probability: log softmax(logits / T) over the whole vocabulary.

    Logits are divided by the temperature, cut to the `top_k` largest, then to the nucleus of what is left, and one
    token is drawn with the row's uniform number. Temperature 0 chooses the largest logit and reports at temperature 1.
    Equal logits are taken in the order of their ids, so that `top_k` 1 is greedy. The report is not renormalised by
    either cut, so it can be compared with the trainer's own forward pass.

    >>> token, logp = sample(jnp.array([[0.0, 1.0]]), jnp.array([0.9]), jnp.float32(0.0), None, None)
    >>> int(token[0]), round(float(logp[0]), 4)
    (1, -0.3133)
    """
    random = temperature > 0
    # The largest logit becomes zero before the division, so that no temperature overflows.
    scaled = (logits - jnp.max(logits, axis=-1, keepdims=True)) / jnp.where(random, temperature, 1.0)
    tokens = jax.lax.cond(
        random,
        lambda: _random(scaled, uniform, top_p, top_k),
        lambda: jnp.argmax(scaled, axis=-1).astype(jnp.int32),
    )
    chosen = jnp.take_along_axis(scaled, tokens[:, None], axis=-1)[:, 0]
    return tokens, chosen - jax.nn.logsumexp(scaled, axis=-1)


def _random(
    scaled: Float[Array, "row vocab"],
    uniform: Float[Array, "row"],
    top_p: Float[Array, ""] | None,
    top_k: int | None,
) -> Int[Array, "row"]:
    kept, ids = (scaled, None) if top_k is None else jax.lax.top_k(scaled, min(top_k, scaled.shape[-1]))
    weights = jnp.exp(kept)
    if top_p is not None:
        weights = nucleus(weights, top_p)
    drawn = draw(weights, uniform)
    return drawn if ids is None else jnp.take_along_axis(ids, drawn[:, None], axis=-1)[:, 0]
