"""The choice of the next token."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from dovetail_rollout.decoding.cuts import largest, likely, nucleus
from dovetail_rollout.decoding.draw import draw

SORTED: int = 256
"""Up to this `top_k` the tokens are gathered; above it they are cut in place, which is cheaper then."""


class Numbers(NamedTuple):
    """The settings of sampling that may change without a compilation; None means that the cut is not made.

    `over_support` says whether the reported probabilities sum to one over the support or over the whole vocabulary.
    """

    temperature: Float[Array, ""]
    over_support: Bool[Array, ""]
    top_p: Float[Array, ""] | None = None
    min_p: Float[Array, ""] | None = None


def sample(
    logits: Float[Array, "row vocab"],
    uniform: Float[Array, "row 2"],
    numbers: Numbers,
    top_k: int | None,
) -> tuple[Int[Array, "row"], Float[Array, "row"]]:
    """Choose a token per row and report its log-probability.

    Logits are divided by the temperature T. Tokens less than `min_p` times as likely as the most likely one are cut,
    then all but the `top_k` largest, then all outside the nucleus that holds `top_p` of what is left. One token is
    drawn from the rest, the support S, with the row's uniform numbers. The report is

        log softmax(logits / T)                     over the whole vocabulary, or
        log softmax(logits / T) - log ∑_S softmax   over the support, the probability of the draw itself.

    Without a cut the two are equal. With one, an off-policy correction needs the probability of the actual draw, so
    the support is the default, as in vLLM's processed log-probabilities; the vocabulary shows, under a cut too, how far
    the engine and the trainer differ by rounding alone.

    Temperature 0 chooses the largest logit and reports at temperature 1 over the whole vocabulary. Equal logits are
    taken in the order of their ids, so that `top_k` = 1 is greedy. If logits are NaN or +inf the report is not finite.

    >>> token, logp = sample(
    ...     jnp.array([[0.0, 1.0]]), jnp.array([[0.9, 0.9]]), Numbers(jnp.float32(0), jnp.array(True)), None
    ... )
    >>> int(token[0]), round(float(logp[0]), 4)
    (1, -0.3133)
    """
    random = numbers.temperature > 0
    # The largest logit becomes zero before the division, so no temperature can overflow.
    scaled = (logits - jnp.max(logits, axis=-1, keepdims=True)) / jnp.where(random, numbers.temperature, 1.0)
    weights = jnp.exp(scaled)
    total = jnp.sum(weights, axis=-1)

    def greedily() -> tuple[Int[Array, "row"], Float[Array, "row"]]:
        return jnp.argmax(scaled, axis=-1).astype(jnp.int32), total

    def randomly() -> tuple[Int[Array, "row"], Float[Array, "row"]]:
        kept, ids = _cut(weights, numbers, top_k)
        drawn = draw(kept, uniform)
        mass = jnp.where(numbers.over_support, jnp.sum(kept, axis=-1), total)
        return drawn if ids is None else jnp.take_along_axis(ids, drawn[:, None], axis=-1)[:, 0], mass

    tokens, mass = jax.lax.cond(random, randomly, greedily)
    chosen = jnp.take_along_axis(scaled, tokens[:, None], axis=-1)[:, 0]
    return tokens, chosen - jnp.log(mass)


def _cut(
    weights: Float[Array, "row vocab"], numbers: Numbers, top_k: int | None
) -> tuple[Float[Array, "row candidate"], Int[Array, "row candidate"] | None]:
    """Return the weights of the support, and their ids if the weights were gathered."""
    ids = None
    if numbers.min_p is not None:
        weights = likely(weights, numbers.min_p)
    if top_k is not None and top_k < weights.shape[-1]:
        if top_k <= SORTED:
            weights, ids = jax.lax.top_k(weights, top_k)
        else:
            weights = largest(weights, top_k)
    if numbers.top_p is not None:
        weights = nucleus(weights, numbers.top_p)
    return weights, ids
