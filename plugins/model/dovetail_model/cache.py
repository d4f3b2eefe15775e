"""The key-value cache: what a decoder remembers of the tokens it has read."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


class KeyValues(NamedTuple):
    """The keys and values of one layer, an entry of `batch` for each row and, within it, each key-value head.

    Three dimensions, as the products take them: a cache of four is copied at every step of a decoding loop, as XLA on
    CPUs does not update in place what it also reshapes.
    """

    keys: Float[Array, "batch slot head_dim"]
    values: Float[Array, "batch slot head_dim"]

    def write(self, new: KeyValues, start: Int[Array, ""]) -> KeyValues:
        """Return these with `new` in the slots from `start` on."""
        pairs = zip(self, new, strict=True)
        return KeyValues(
            *(jax.lax.dynamic_update_slice(old, add.astype(old.dtype), (0, start, 0)) for old, add in pairs)
        )


class Cache(NamedTuple):
    """The keys and values of every layer, in slots filled from the left.

    Every array has the rows on its first axis; the scalar `filled`, the number of slots in use, is shared. What of them
    may be attended to is in `valid`. Writing past the last slot overwrites the last ones silently
    (`dynamic_update_slice` clamps): make the cache long enough.
    """

    layers: tuple[KeyValues, ...]
    valid: Bool[Array, "seq slot"]
    filled: Int[Array, ""]

    def extend(self, layers: tuple[KeyValues, ...], mask: Bool[Array, "seq token"]) -> Cache:
        """Return the cache with these layers, after tokens with this mask."""
        return Cache(layers, self.validity(mask), self.filled + mask.shape[1])

    def validity(self, mask: Bool[Array, "seq token"]) -> Bool[Array, "seq slot"]:
        """Return `valid` once tokens with this mask are appended."""
        return jax.lax.dynamic_update_slice(self.valid, mask, (0, self.filled))


def empty_cache(layers: int, batch: int, length: int, kv_heads: int, head_dim: int, dtype: str) -> Cache:
    """Return a cache without tokens.

    >>> cache = empty_cache(layers=2, batch=3, length=8, kv_heads=1, head_dim=4, dtype="float32")
    >>> len(cache.layers), cache.layers[0].keys.shape, int(cache.filled)
    (2, (3, 8, 4), 0)
    """
    shape = (batch * kv_heads, length, head_dim)
    # A buffer for each leaf: one shared by several cannot be donated.
    keys_values = tuple(KeyValues(jnp.zeros(shape, dtype), jnp.zeros(shape, dtype)) for _ in range(layers))
    return Cache(keys_values, jnp.zeros((batch, length), bool), jnp.zeros((), jnp.int32))
