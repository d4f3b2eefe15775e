"""Where tokens are in their rows, and what each of them sees."""

import jax.numpy as jnp
import numpy as np

from dovetail_model.attention import positions, views
from dovetail_model.cache import empty_cache
from dovetail_model.layers.rope import Rope
from dovetail_model.spec import Layer

FAR = Layer(Rope(theta=100.0))


def filled(mask, room):
    """A cache of one layer without content, after tokens with this mask."""
    cache = empty_cache(layers=1, batch=len(mask), length=len(mask[0]) + room, kv_heads=1, head_dim=2, dtype="float32")
    return cache.extend(cache.layers, jnp.array(mask, bool))


def test_positions_go_on_after_the_cached_tokens():
    cache = filled([[0, 1, 1], [1, 1, 1]], room=3)
    more = jnp.array([[True, True], [True, True]])
    np.testing.assert_array_equal(positions(more, cache).tokens, [[2, 3], [3, 4]])
    np.testing.assert_array_equal(positions(more, cache).own[:, :5], [[-1, 0, 1, 2, 3], [0, 1, 2, 3, 4]])


def test_positions_go_on_after_the_prefix():
    prefix, cache = filled([[0, 1, 1], [1, 1, 1]], room=0), filled([[0, 1], [1, 1], [0, 0], [1, 1]], room=1)
    numbers = positions(jnp.ones((4, 1), bool), cache, prefix)
    np.testing.assert_array_equal(numbers.tokens, [[3], [4], [3], [5]])
    np.testing.assert_array_equal(numbers.own, [[1, 2, 3], [2, 3, 4], [2, 2, 3], [3, 4, 5]])
    np.testing.assert_array_equal(numbers.prefix, [[-1, 0, 1], [0, 1, 2]])


def test_a_window_counts_true_tokens():
    # a row of 5 true tokens: two in the prefix, one in the cache, two now; a window of 3
    prefix, cache = filled([[0, 1, 0, 1]], room=0), filled([[0, 1]], room=2)
    near = Layer(Rope(theta=100.0), window=3)
    view = views([near], 2, jnp.ones((1, 2), bool), cache, prefix)[near]
    np.testing.assert_array_equal(view.prefix.visible()[0, 0], [[0, 0, 0, 1], [0, 0, 0, 0]])
    np.testing.assert_array_equal(view.own.visible()[0, 0], [[0, 1, 1, 0], [0, 1, 1, 1]])


def test_layers_of_one_kind_share_a_view():
    near, far = Layer(Rope(theta=100.0), window=3), Layer(Rope(theta=100.0))
    assert list(views([near, far, near, near], 2, jnp.ones((1, 2), bool), None, None)) == [near, far]


def test_cached_tokens_are_visible_and_empty_slots_are_not():
    view = views([FAR], 2, jnp.array([[True, True]]), filled([[0, 1]], room=3), None)[FAR]
    np.testing.assert_array_equal(view.own.visible()[0, 0], [[0, 1, 1, 0, 0], [0, 1, 1, 1, 0]])


def test_a_token_sees_the_true_ones_up_to_itself_and_all_of_the_prefix():
    prefix = filled([[0, 1, 1]], room=1)
    view = views([FAR], 2, jnp.array([[False, True, True, False, True]] * 2), None, prefix)[FAR]
    np.testing.assert_array_equal(
        view.own.visible()[0, 0],
        [[0, 0, 0, 0, 0], [0, 1, 0, 0, 0], [0, 1, 1, 0, 0], [0, 0, 0, 0, 0], [0, 1, 1, 0, 1]],
    )
    np.testing.assert_array_equal(view.prefix.visible(), [[[[0, 1, 1, 0]]]])


def test_only_the_dense_implementation_gets_the_product_of_tokens_and_keys():
    mask = jnp.ones((1, 4), bool)
    assert views([FAR], 2, mask, None, None, how="dense")[FAR].own.mask is not None
    assert views([FAR], 2, mask, None, None, how="blockwise")[FAR].own.mask is None
