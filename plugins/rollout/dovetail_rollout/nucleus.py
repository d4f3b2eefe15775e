"""Top-p: keep the nucleus of a distribution."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


def nucleus(weights: Float[Array, "row token"], top_p: Float[Array, ""]) -> Float[Array, "row token"]:
    """Zero the weights outside the smallest set of heaviest tokens that holds at least `top_p` of each row's mass.

    Holtzman et al. 2020, "The Curious Case of Neural Text Degeneration", equation 2. Of equal weights the first are
    kept, as many as are needed; `top_p` 1 keeps everything. Weights are float32, not negative, and need not be
    normalised.

    There is no sort, which on CPUs would cost several times the rest of a decoding step: the bits of a non-negative
    float order as the float does, so the least weight kept is found exactly by 31 bisections, each one masked sum. "At
    least" is meant up to the rounding of that sum.

    >>> nucleus(jnp.array([[0.5, 0.25, 0.125, 0.125]]), jnp.float32(0.8))
    Array([[0.5  , 0.25 , 0.125, 0.   ]], dtype=float32)
    """
    needed = top_p * jnp.sum(weights, axis=-1)
    bits = jax.lax.bitcast_convert_type(weights, jnp.int32)
    least = _least_kept(weights, bits, needed)[:, None]
    above = bits > least
    tied = bits == least
    missing = needed - jnp.sum(jnp.where(above, weights, 0.0), axis=-1)
    each = jnp.max(jnp.where(tied, weights, jnp.finfo(jnp.float32).tiny), axis=-1)
    ties_needed = jnp.ceil(missing / each)
    kept = above | _first(tied, ties_needed)
    return jnp.where(kept | (top_p >= 1), weights, 0.0)


def _least_kept(
    weights: Float[Array, "row token"], bits: Int[Array, "row token"], needed: Float[Array, "row"]
) -> Int[Array, "row"]:
    """Return the bits of the greatest weight such that it and all heavier ones together reach `needed`."""

    def halve(_: Int[Array, ""], bounds: tuple[Int[Array, "row"], Int[Array, "row"]]) -> tuple[Array, Array]:
        reached, missed = bounds
        middle = reached + (missed - reached) // 2
        mass = jnp.sum(jnp.where(bits >= middle[:, None], weights, 0.0), axis=-1)
        enough = mass >= needed
        return jnp.where(enough, middle, reached), jnp.where(enough, missed, middle)

    heaviest = jnp.max(bits, axis=-1)
    return jax.lax.fori_loop(0, 31, halve, (jnp.zeros_like(heaviest), heaviest + 1))[0]


def _first(which: Bool[Array, "row token"], count: Float[Array, "row"]) -> Bool[Array, "row token"]:
    """Keep the first `count` true entries of each row."""
    # Ties are rare: rank them only if some must go.
    surplus = jnp.any(jnp.sum(which, axis=-1, dtype=jnp.float32) > count)

    def ranked() -> Bool[Array, "row token"]:
        return which & (jnp.cumsum(which, axis=-1, dtype=jnp.float32) <= count[:, None])

    return jax.lax.cond(surplus, ranked, lambda: which)
