"""The key-value cache, which stores the keys and values of the tokens that a decoder has processed."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


class KeyValues(NamedTuple):
    """The keys and values of one layer; `batch` has an entry for each key-value head of each row.

    There are three dimensions because the products take three. A four-dimensional cache would be copied at every
    decoding step: XLA on CPUs does not update in place an array that it also reshapes.
    """

    keys: Float[Array, "batch position head_dim"]
    values: Float[Array, "batch position head_dim"]

    def write(self, new: KeyValues, start: Int[Array, ""]) -> KeyValues:
        """Return a copy of this entry with `new` written at the positions from `start` on."""
        pairs = zip(self, new, strict=True)
        return KeyValues(
            *(jax.lax.dynamic_update_slice(old, add.astype(old.dtype), (0, start, 0)) for old, add in pairs)
        )


class Cache(NamedTuple):
    """The keys and values of every layer, in positions filled from the left.

    The first axis of every array is the rows. The scalar `filled`, the number of positions in use, is common to all
    rows.
    `valid` says which positions may be attended to. Writing past the end silently overwrites the last positions, since
    `dynamic_update_slice` clamps: make the cache long enough.
    """

    layers: tuple[KeyValues, ...]
    valid: Bool[Array, "seq position"]
    filled: Int[Array, ""]

    def extend(self, layers: tuple[KeyValues, ...], mask: Bool[Array, "seq token"]) -> Cache:
        """Return the cache with these layers, after tokens with this mask."""
        return Cache(layers, self.validity(mask), self.filled + mask.shape[1])

    def validity(self, mask: Bool[Array, "seq token"]) -> Bool[Array, "seq position"]:
        """Return `valid` once tokens with this mask are appended."""
        return jax.lax.dynamic_update_slice(self.valid, mask, (0, self.filled))


def empty_cache(layers: int, batch: int, length: int, kv_heads: int, head_dim: int, dtype: str) -> Cache:
    """Return a cache without tokens.

    >>> cache = empty_cache(layers=2, batch=3, length=8, kv_heads=1, head_dim=4, dtype="float32")
    >>> len(cache.layers), cache.layers[0].keys.shape, int(cache.filled)
    (2, (3, 8, 4), 0)
    """
    shape = (batch * kv_heads, length, head_dim)
    # Each leaf has its own buffer, because a buffer shared by several leaves cannot be donated.
    keys_values = tuple(KeyValues(jnp.zeros(shape, dtype), jnp.zeros(shape, dtype)) for _ in range(layers))
    return Cache(keys_values, jnp.zeros((batch, length), bool), jnp.zeros((), jnp.int32))
