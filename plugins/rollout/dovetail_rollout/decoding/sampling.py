"""The choice of the next token."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from dovetail_rollout.decoding.cuts import largest, likely, nucleus
from dovetail_rollout.decoding.draw import draw

SORTED: int = 256
"""The greatest `top_k` whose support can be kept."""
GATHERED: int = 8192
"""Up to this `top_k` the tokens are gathered by `lax.top_k`; above it they are cut in place by bisection. On CPUs both
take equal time at about 10,000 of 151,936 tokens; on an H200 bisection is faster for any number, so that tokens are
gathered there only if their ids are kept (`benchmarks/choices.py`)."""


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
    *,
    keep_support: bool = False,
) -> tuple[Int[Array, "row"], Float[Array, "row"], Int[Array, "row candidate"] | None]:
    """Choose a token per row, report its log-probability and, if asked, the ids that it was chosen among.

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

    With `keep_support` the third result has `top_k` (≤ 256) ids, -1 where fewer are left; all are -1 at temperature 0.

    >>> token, logp, _ = sample(
    ...     jnp.array([[0.0, 1.0]]), jnp.array([[0.9, 0.9]]), Numbers(jnp.float32(0), jnp.array(True)), None
    ... )
    >>> int(token[0]), round(float(logp[0]), 4)
    (1, -0.3133)
    """
    random = numbers.temperature > 0
    temperature = jnp.where(random, numbers.temperature, 1.0)
    highest = jnp.max(logits, axis=-1, keepdims=True)
    kept_ids = jnp.full((len(logits), top_k or 0), -1, jnp.int32) if keep_support else None

    def scaled(logits: Float[Array, "row item"]) -> Float[Array, "row item"]:
        # The largest logit becomes zero before the division, so no temperature can overflow.
        return (logits - highest) / temperature

    # Each branch computes the weights it needs, since what enters a conditional is written to memory.
    def greedily() -> tuple[Int[Array, "row"], Float[Array, "row"], Any]:
        return jnp.argmax(logits, axis=-1).astype(jnp.int32), jnp.sum(jnp.exp(scaled(logits)), axis=-1), kept_ids

    def randomly() -> tuple[Int[Array, "row"], Float[Array, "row"], Any]:
        weights = jnp.exp(scaled(logits))
        kept, ids = _cut(weights, numbers, top_k, gathers(top_k, keep_support))
        drawn = draw(kept, uniform)
        mass = jnp.where(numbers.over_support, jnp.sum(kept, axis=-1), jnp.sum(weights, axis=-1))
        support = None if kept_ids is None else _ids(kept, ids, kept_ids)
        return drawn if ids is None else jnp.take_along_axis(ids, drawn[:, None], axis=-1)[:, 0], mass, support

    tokens, mass, support = jax.lax.cond(random, randomly, greedily)
    chosen = scaled(jnp.take_along_axis(logits, tokens[:, None], axis=-1))[:, 0]
    return tokens, chosen - jnp.log(mass), support


def _ids(
    kept: Float[Array, "row weight"], ids: Int[Array, "row weight"] | None, empty: Int[Array, "row candidate"]
) -> Int[Array, "row candidate"]:
    """Return the ids of the weights that are not zero; a vocabulary smaller than `top_k` is taken whole."""
    every = jnp.broadcast_to(jnp.arange(kept.shape[-1], dtype=jnp.int32), kept.shape) if ids is None else ids
    return empty.at[:, : kept.shape[-1]].set(jnp.where(kept > 0, every, -1))


def gathers(top_k: int | None, keep_support: bool) -> bool:
    """Return whether the tokens of a cut are gathered on this platform."""
    return keep_support or (top_k is not None and top_k <= GATHERED and jax.default_backend() != "gpu")


def _cut(
    weights: Float[Array, "row vocab"], numbers: Numbers, top_k: int | None, gathered: bool
) -> tuple[Float[Array, "row candidate"], Int[Array, "row candidate"] | None]:
    """Return the weights of the support, and their ids if the weights were gathered."""
    ids = None
    if numbers.min_p is not None:
        weights = likely(weights, numbers.min_p)
    if top_k is not None and top_k < weights.shape[-1]:
        if gathered:
            weights, ids = jax.lax.top_k(weights, top_k)
        else:
            weights = largest(weights, top_k)
    if numbers.top_p is not None:
        weights = nucleus(weights, numbers.top_p)
    return weights, ids
