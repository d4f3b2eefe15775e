"""The key-value cache."""

import jax.numpy as jnp
import numpy as np

from dovetail_model.cache import KeyValues, empty_cache


def test_cache_writes_after_what_it_holds():
    cache = empty_cache(layers=1, batch=1, length=3, kv_heads=1, head_dim=1, dtype="float32")
    for number in (1.0, 2.0):
        new = KeyValues(jnp.full((1, 1, 1), number), jnp.full((1, 1, 1), -number))
        cache = cache.extend((cache.layers[0].write(new, cache.filled),), jnp.ones((1, 1), bool))
    np.testing.assert_array_equal(cache.layers[0].keys.ravel(), [1, 2, 0])
    np.testing.assert_array_equal(cache.layers[0].values.ravel(), [-1, -2, 0])
    np.testing.assert_array_equal(cache.valid, [[True, True, False]])
    assert cache.filled == 2
