"""Cuts of a distribution: min-p, top-k and top-p set the weights of the tokens that may not be drawn to zero.

None of them sorts: on CPUs that would cost several times the rest of a decoding step. The bits of non-negative floats
are ordered like the floats, so 31 bisections, each a masked sum, find the least weight to keep exactly. Weights are
float32 and not negative, and need not be normalised.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


def likely(weights: Float[Array, "row token"], min_p: Float[Array, ""]) -> Float[Array, "row token"]:
    """Zero the weights below `min_p` times the greatest weight of their row.

    Nguyen et al. 2024, "Turning Up the Heat: Min-p Sampling for Creative and Coherent LLM Outputs", equation 3.

    >>> likely(jnp.array([[0.5, 0.25, 0.125]]), jnp.float32(0.5))
    Array([[0.5 , 0.25, 0.  ]], dtype=float32)
    """
    return jnp.where(weights >= min_p * jnp.max(weights, axis=-1, keepdims=True), weights, 0.0)


def largest(weights: Float[Array, "row token"], count: int) -> Float[Array, "row token"]:
    """Zero all but the `count` largest weights of each row; of equal weights the first are kept.

    Fan et al. 2018, "Hierarchical Neural Story Generation", section 5.4.

    >>> largest(jnp.array([[1.0, 3.0, 1.0, 2.0]]), 3)
    Array([[1., 3., 0., 2.]], dtype=float32)
    """
    needed = jnp.full(weights.shape[0], count, jnp.float32)
    return _heaviest(weights, jnp.ones_like(weights), needed)


def nucleus(weights: Float[Array, "row token"], top_p: Float[Array, ""]) -> Float[Array, "row token"]:
    """Zero the weights outside the smallest set of heaviest tokens that holds at least `top_p` of the row's mass.

    Holtzman et al. 2020, "The Curious Case of Neural Text Degeneration", equation 2. Of equal weights, as many as
    needed are kept, the first ones first; `top_p` = 1 keeps everything. "At least" holds up to rounding of the sum.

    >>> nucleus(jnp.array([[0.5, 0.25, 0.125, 0.125]]), jnp.float32(0.8))
    Array([[0.5  , 0.25 , 0.125, 0.   ]], dtype=float32)
    """
    kept = _heaviest(weights, weights, top_p * jnp.sum(weights, axis=-1))
    return jnp.where(top_p >= 1, weights, kept)


def _heaviest(
    weights: Float[Array, "row token"], sizes: Float[Array, "row token"], needed: Float[Array, "row"]
) -> Float[Array, "row token"]:
    """Keep the heaviest weights, as many as it takes for their `sizes` to add up to `needed`; zero the others.

    Tokens of equal weight have equal sizes.
    """
    bits = jax.lax.bitcast_convert_type(weights, jnp.int32)
    least = _least_kept(sizes, bits, needed)[:, None]
    above, tied = bits > least, bits == least
    missing = needed - jnp.sum(jnp.where(above, sizes, 0.0), axis=-1)
    each = jnp.max(jnp.where(tied, sizes, jnp.finfo(jnp.float32).tiny), axis=-1)
    return jnp.where(above | _first(tied, jnp.ceil(missing / each)), weights, 0.0)


def _least_kept(
    sizes: Float[Array, "row token"], bits: Int[Array, "row token"], needed: Float[Array, "row"]
) -> Int[Array, "row"]:
    """Return the bits of the greatest weight at which its size and those of all heavier ones add up to `needed`."""

    def halve(_: Int[Array, ""], bounds: tuple[Int[Array, "row"], Int[Array, "row"]]) -> tuple[Array, Array]:
        reached, missed = bounds
        middle = reached + (missed - reached) // 2
        enough = jnp.sum(jnp.where(bits >= middle[:, None], sizes, 0.0), axis=-1) >= needed
        return jnp.where(enough, middle, reached), jnp.where(enough, missed, middle)

    heaviest = jnp.max(bits, axis=-1)
    return jax.lax.fori_loop(0, 31, halve, (jnp.zeros_like(heaviest), heaviest + 1))[0]


def _first(which: Bool[Array, "row token"], count: Float[Array, "row"]) -> Bool[Array, "row token"]:
    """Keep the first `count` true entries of each row."""
    # Ties are rare, so they are ranked only if some must go.
    surplus = jnp.any(jnp.sum(which, axis=-1, dtype=jnp.float32) > count)

    def ranked() -> Bool[Array, "row token"]:
        return which & (jnp.cumsum(which, axis=-1, dtype=jnp.float32) <= count[:, None])

    return jax.lax.cond(surplus, ranked, lambda: which)
