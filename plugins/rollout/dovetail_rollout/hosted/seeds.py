"""Seeds of completions, for hosts that draw with random numbers of their own."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key


def seeds_of(keys: Key[Array, "*completion"]) -> Int[np.ndarray, "*completion"]:
    """Return a seed of 63 bits for each key, whatever the kind of key."""
    data = np.asarray(jax.random.key_data(keys))
    flat = data.reshape(-1, data.shape[-1])
    # a power of two, as each number is compiled: rounds of episodes have any number of keys
    padded = np.resize(flat, (1 << (len(flat) - 1).bit_length(), flat.shape[1]))
    words = _words(jax.random.wrap_key_data(jax.device_put(padded), impl=jax.random.key_impl(keys)))
    high, low = np.asarray(words)[: len(flat)].astype(np.int64).T
    return (((high & 0x7FFFFFFF) << 32) | low).reshape(keys.shape)


@jax.jit
def _words(keys: Key[Array, "seq"]) -> Int[Array, "seq word"]:
    return jax.vmap(lambda key: jax.random.bits(key, (2,), jnp.uint32))(keys)
