import jax
import jax.numpy as jnp
import numpy as np

from dovetail_model import attention
from dovetail_model.attention import positions, visibility
from dovetail_model.cache import KeyValues, empty_cache

attend = jax.jit(attention.attend)


def inputs(seq=2, token=3, slot=5, head=4, kv_head=2, head_dim=6):
    rng = np.random.default_rng(0)
    shapes = [(seq, token, head, head_dim), (seq, slot, kv_head, head_dim), (seq, slot, kv_head, head_dim)]
    visible = rng.random((seq, token, slot)) < 0.6
    visible[:, :, 0] = True
    return *(jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in shapes), jnp.asarray(visible)


def test_equals_a_loop():
    queries, keys, values, visible = (np.asarray(x) for x in inputs())
    expected = np.zeros(queries.shape)
    for row, token, head in np.ndindex(2, 3, 4):
        seen = np.flatnonzero(visible[row, token])
        score = keys[row, seen, head // 2] @ queries[row, token, head] / np.sqrt(6)
        weights = np.exp(score) / np.exp(score).sum()
        expected[row, token, head] = weights @ values[row, seen, head // 2]
    np.testing.assert_allclose(attend(*inputs()), expected, atol=1e-6)


def test_equals_full_attention_with_repeated_heads():
    queries, keys, values, visible = inputs()
    repeated = attend(queries, jnp.repeat(keys, 2, axis=2), jnp.repeat(values, 2, axis=2), visible)
    np.testing.assert_allclose(attend(queries, keys, values, visible), repeated, atol=1e-6)


def test_a_token_that_sees_nothing_is_finite_in_value_and_gradient():
    queries, keys, values, visible = inputs()
    nothing = jnp.zeros_like(visible)

    def total(*args):
        return jnp.sum(attend(*args, nothing))

    value, gradients = jax.value_and_grad(total, argnums=(0, 1, 2))(queries, keys, values)
    assert jnp.isfinite(value)
    assert all(jnp.all(jnp.isfinite(gradient)) for gradient in gradients)


def test_unseen_slots_change_neither_value_nor_gradient():
    queries, keys, values, visible = inputs()
    visible = visible.at[:, :, 3].set(False)
    far = keys.at[:, 3].set(1e15), values.at[:, 3].set(1e15)

    def total(queries, keys, values):
        return jnp.sum(jnp.square(attend(queries, keys, values, visible)))

    for here, there in zip(
        jax.value_and_grad(total)(queries, keys, values), jax.value_and_grad(total)(queries, *far), strict=True
    ):
        np.testing.assert_array_equal(here, there)


def test_softmax_is_float32_and_the_dtype_is_kept():
    queries, keys, values, visible = inputs()
    half = [x.astype(jnp.bfloat16) for x in (queries, keys, values)]
    mixed = attend(*half, visible)
    assert mixed.dtype == jnp.bfloat16
    np.testing.assert_allclose(mixed.astype(jnp.float32), attend(queries, keys, values, visible), atol=0.03)


def test_positions_go_on_after_the_cached_tokens():
    cache = empty_cache(layers=1, batch=2, length=6, kv_heads=1, head_dim=2, dtype="float32")
    cache = cache.extend(cache.layers, jnp.array([[False, True, True], [True, True, True]]))
    more = jnp.array([[True, True], [True, True]])
    np.testing.assert_array_equal(positions(more, cache), [[2, 3], [3, 4]])


def test_cached_tokens_are_visible_and_empty_slots_are_not():
    cache = empty_cache(layers=1, batch=1, length=5, kv_heads=1, head_dim=2, dtype="float32")
    cache = cache.extend(cache.layers, jnp.array([[False, True]]))
    np.testing.assert_array_equal(
        visibility(jnp.array([[True, True]]), cache)[0],
        [[False, True, True, False, False], [False, True, True, True, False]],
    )


def test_cache_writes_after_what_it_holds():
    cache = empty_cache(layers=1, batch=1, length=3, kv_heads=1, head_dim=1, dtype="float32")
    for number in (1.0, 2.0):
        new = KeyValues(jnp.full((1, 1, 1, 1), number), jnp.full((1, 1, 1, 1), -number))
        cache = cache.extend((cache.layers[0].write(new, cache.filled),), jnp.ones((1, 1), bool))
    np.testing.assert_array_equal(cache.layers[0].keys.ravel(), [1, 2, 0])
    np.testing.assert_array_equal(cache.layers[0].values.ravel(), [-1, -2, 0])
    np.testing.assert_array_equal(cache.valid, [[True, True, False]])
    assert cache.filled == 2
