import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dovetail_model import attention
from dovetail_model.attention import Segment, by_head, positions, views, visibility
from dovetail_model.cache import KeyValues, empty_cache
from dovetail_model.layers.rope import Rope
from dovetail_model.spec import Layer

SCALE = 6**-0.5


@functools.partial(jax.jit, static_argnames=("scale", "cap"))
def attend(queries, keys, values, visible, scale=SCALE, cap=None):
    return attention.attend(queries, (Segment(by_head(keys), by_head(values), visible[:, None]),), scale=scale, cap=cap)


def inputs(seq=2, token=3, slot=5, head=4, kv_head=2, head_dim=6):
    rng = np.random.default_rng(0)
    shapes = [(seq, token, head, head_dim), (seq, slot, kv_head, head_dim), (seq, slot, kv_head, head_dim)]
    visible = rng.random((seq, token, slot)) < 0.6
    visible[:, :, 0] = True
    return *(jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in shapes), jnp.asarray(visible)


@pytest.mark.parametrize(("scale", "cap"), [(SCALE, None), (0.7, 1.5)])
def test_equals_a_loop(scale, cap):
    queries, keys, values, visible = (np.asarray(x) for x in inputs())
    expected = np.zeros(queries.shape)
    for row, token, head in np.ndindex(2, 3, 4):
        seen = np.flatnonzero(visible[row, token])
        score = keys[row, seen, head // 2] @ queries[row, token, head] * scale
        score = score if cap is None else cap * np.tanh(score / cap)
        weights = np.exp(score) / np.exp(score).sum()
        expected[row, token, head] = weights @ values[row, seen, head // 2]
    np.testing.assert_allclose(attend(*inputs(), scale=scale, cap=cap), expected, atol=1e-6)


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


@pytest.mark.parametrize("samples", [1, 2, 3])
def test_a_shared_part_equals_keys_and_values_repeated_and_joined(samples):
    queries, keys, values, visible = inputs(seq=2 * samples)
    _, first_keys, first_values, first_visible = inputs(slot=4)
    first_visible = first_visible[:, None, :1]  # [row, sample, token, slot]: the same for all samples and tokens

    def shared(queries, keys, values, first_keys, first_values):
        segments = (
            Segment(by_head(first_keys), by_head(first_values), first_visible),
            Segment(by_head(keys), by_head(values), visible[:, None]),
        )
        return attention.attend(queries, segments, scale=SCALE, cap=2.0)

    def joined(queries, keys, values, first_keys, first_values):
        repeated = (jnp.repeat(x, samples, axis=0) for x in (first_keys, first_values, first_visible[:, 0]))
        both = [jnp.concatenate(pair, axis=1) for pair in zip(repeated, (keys, values), strict=False)]
        seen = jnp.repeat(jnp.broadcast_to(first_visible[:, 0], (2, 3, 4)), samples, axis=0)
        return attend(queries, *both, jnp.concatenate([seen, visible], axis=2), cap=2.0)

    def run(function):
        def total(*args):
            mixed = function(*args)
            return jnp.sum(jnp.sin(mixed)), mixed

        args = queries, keys, values, first_keys, first_values
        return jax.jit(jax.value_and_grad(total, argnums=tuple(range(5)), has_aux=True))(*args)

    jax.tree.map(
        lambda here, there: np.testing.assert_allclose(here, there, rtol=1e-6, atol=2e-6), run(shared), run(joined)
    )


def test_a_part_of_which_nothing_is_seen_changes_neither_value_nor_gradient():
    queries, keys, values, visible = inputs()
    nothing = Segment(by_head(keys + 1), by_head(values + 1e6), jnp.zeros((2, 1, 1, 5), bool))

    def total(segments, *args):
        return jnp.sum(
            jnp.sin(
                attention.attend(args[0], (*segments, Segment(*map(by_head, args[1:]), visible[:, None])), scale=SCALE)
            )
        )

    run = jax.jit(jax.value_and_grad(total, argnums=(1, 2, 3)))
    alone, beside = run((), queries, keys, values), run((nothing,), queries, keys, values)
    jax.tree.map(lambda here, there: np.testing.assert_allclose(here, there, rtol=1e-6, atol=1e-6), alone, beside)


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
    np.testing.assert_array_equal(view.prefix[0, 0], [[0, 0, 0, 1], [0, 0, 0, 0]])
    np.testing.assert_array_equal(view.own[0, 0], [[0, 1, 1, 0], [0, 1, 1, 1]])


def test_layers_of_one_kind_share_a_view():
    near, far = Layer(Rope(theta=100.0), window=3), Layer(Rope(theta=100.0))
    assert list(views([near, far, near, near], 2, jnp.ones((1, 2), bool), None, None)) == [near, far]


def test_cached_tokens_are_visible_and_empty_slots_are_not():
    cache = filled([[0, 1]], room=3)
    np.testing.assert_array_equal(
        visibility(jnp.array([[True, True]]), cache)[0],
        [[False, True, True, False, False], [False, True, True, True, False]],
    )


def test_cache_writes_after_what_it_holds():
    cache = empty_cache(layers=1, batch=1, length=3, kv_heads=1, head_dim=1, dtype="float32")
    for number in (1.0, 2.0):
        new = KeyValues(jnp.full((1, 1, 1), number), jnp.full((1, 1, 1), -number))
        cache = cache.extend((cache.layers[0].write(new, cache.filled),), jnp.ones((1, 1), bool))
    np.testing.assert_array_equal(cache.layers[0].keys.ravel(), [1, 2, 0])
    np.testing.assert_array_equal(cache.layers[0].values.ravel(), [-1, -2, 0])
    np.testing.assert_array_equal(cache.valid, [[True, True, False]])
    assert cache.filled == 2
