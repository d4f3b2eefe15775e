import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dovetail_model.attention import Places, Segment, Sight, by_head
from dovetail_model.attention.dense import dense

SCALE = 6**-0.5


@functools.partial(jax.jit, static_argnames=("scale", "cap"))
def attend(queries, keys, values, visible, scale=SCALE, cap=None):
    return dense(queries, (segment(keys, values, visible[:, None]),), scale=scale, cap=cap)


def segment(keys, values, visible):
    """Keys and values under any mask, of [row, sample, token, key]."""
    anywhere = [Places(jnp.zeros(shape, jnp.int32)) for shape in (visible.shape[:3], (len(visible), keys.shape[1]))]
    return Segment(by_head(keys), by_head(values), Sight(*anywhere, mask=visible))


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
            segment(first_keys, first_values, first_visible),
            segment(keys, values, visible[:, None]),
        )
        return dense(queries, segments, scale=SCALE, cap=2.0)

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
    nothing = segment(keys + 1, values + 1e6, jnp.zeros((2, 1, 1, 5), bool))

    def total(segments, *args):
        return jnp.sum(jnp.sin(dense(args[0], (*segments, segment(*args[1:], visible[:, None])), scale=SCALE)))

    run = jax.jit(jax.value_and_grad(total, argnums=(1, 2, 3)))
    alone, beside = run((), queries, keys, values), run((nothing,), queries, keys, values)
    jax.tree.map(lambda here, there: np.testing.assert_allclose(here, there, rtol=1e-6, atol=1e-6), alone, beside)
