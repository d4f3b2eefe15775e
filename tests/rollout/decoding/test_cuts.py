import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dovetail_rollout.decoding import cuts

nucleus = jax.jit(cuts.nucleus)


def kept(weights, top_p):
    """Which tokens are left, as a set of ids."""
    left = nucleus(jnp.asarray(weights, jnp.float32)[None, :], jnp.float32(top_p))[0]
    assert set(np.unique(left)) <= {0.0, *np.asarray(weights, np.float32)}
    return set(np.flatnonzero(left))


def by_sorting(weights, top_p):
    order = np.argsort(-np.asarray(weights, np.float64), kind="stable")
    before = np.cumsum(np.asarray(weights, np.float64)[order]) - np.asarray(weights, np.float64)[order]
    return set(order[before < top_p * np.sum(weights)])


@pytest.mark.parametrize("top_p", [1e-6, 0.1, 0.5, 0.9, 0.99, 0.9999])
@pytest.mark.parametrize("spread", [0.1, 1.0, 8.0])
def test_equals_sorting(top_p, spread):
    for seed in range(5):
        weights = np.exp(np.random.default_rng(seed).normal(0, spread, 300)).astype(np.float32)
        assert kept(weights, top_p) == by_sorting(weights, top_p)


@pytest.mark.parametrize(
    ("weights", "top_p", "expected"),
    [
        ([0.5, 0.25, 0.125, 0.125], 0.5, {0}),
        ([0.5, 0.25, 0.125, 0.125], 0.51, {0, 1}),
        ([0.125, 0.25, 0.125, 0.5], 0.8, {0, 1, 3}),
        ([0.125, 0.25, 0.125, 0.5], 0.9, {0, 1, 2, 3}),
        ([1, 1, 1, 1], 0.5, {0, 1}),
        ([1, 1, 1, 1], 0.51, {0, 1, 2}),
        ([0, 1, 0, 1], 0.75, {1, 3}),
        ([8, 4, 2, 2], 1.0, {0, 1, 2, 3}),
        ([1, 1e-20, 1e-30], 1.0, {0, 1, 2}),
        ([3e-38, 1e-38], 0.5, {0}),
    ],
    ids=str,
)
def test_by_hand(weights, top_p, expected):
    assert kept(weights, top_p) == expected


def test_ties_in_one_row_do_not_touch_another():
    weights = jnp.array([[1.0, 1.0, 1.0, 1.0], [1.0, 8.0, 1.0, 2.0]])
    np.testing.assert_array_equal(nucleus(weights, jnp.float32(0.5)) > 0, [[1, 1, 0, 0], [0, 1, 0, 0]])


@pytest.mark.parametrize("count", [1, 2, 7, 299, 300])
@pytest.mark.parametrize("distinct", [3, 300])
def test_the_largest_equal_sorting(count, distinct):
    for seed in range(3):
        weights = np.random.default_rng(seed).integers(0, distinct, (2, 300)).astype(np.float32)
        left = jax.jit(cuts.largest, static_argnums=1)(weights, count)
        order = np.argsort(-weights, axis=1, kind="stable")[:, :count]
        expected = np.zeros_like(weights)
        np.put_along_axis(expected, order, np.take_along_axis(weights, order, axis=1), axis=1)
        np.testing.assert_array_equal(left, expected)


@pytest.mark.parametrize(("min_p", "left"), [(0.0, 4), (0.2, 3), (0.25, 3), (0.26, 2), (0.5, 2), (0.6, 1), (1.0, 1)])
def test_min_p_is_relative_to_the_likeliest(min_p, left):
    weights = jnp.array([[4.0, 8.0, 1.0, 2.0], [0.5, 0.0, 0.0, 0.0]])
    np.testing.assert_array_equal(jnp.sum(cuts.likely(weights, jnp.float32(min_p)) > 0, axis=1), [left, 1])
