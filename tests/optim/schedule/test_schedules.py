"""Schedules of a weight: where they begin and end, and what lies between."""

import jax.numpy as jnp
import numpy as np
import pytest

import dovetail

NAMES = dovetail.names("schedule")
TOTAL = 40


def curve(name, **params):
    schedule = dovetail.get("schedule", name).bind(**params)
    return np.array([schedule(jnp.int32(step), jnp.int32(TOTAL)) for step in range(TOTAL + 1)])


def test_the_five_are_there():
    assert NAMES == ("cosine", "exponential", "linear", "sigmoid", "step")


@pytest.mark.parametrize("name", NAMES)
def test_it_rises_from_zero_to_the_maximum_and_stays(name):
    weights = curve(name, max_weight=0.3, warmup_ratio=0.25)
    assert weights.dtype == np.float32
    assert weights[0] == 0
    np.testing.assert_allclose(weights[10:], 0.3, rtol=1e-6)
    assert (np.diff(weights) >= 0).all()
    assert (weights[:10] < 0.3).all()


@pytest.mark.parametrize("name", NAMES)
def test_without_a_rise_it_is_constant(name):
    np.testing.assert_array_equal(curve(name, max_weight=0.5, warmup_ratio=0.0), np.float32(0.5))


def test_the_middle_of_each_rise():
    middle = {name: curve(name, warmup_ratio=0.5)[10] for name in NAMES}
    expected = {"linear": 0.5, "cosine": 0.5, "sigmoid": 0.5, "step": 0.0, "exponential": 1 / (1 + np.exp(2.5))}
    for name, weight in expected.items():
        np.testing.assert_allclose(middle[name], weight, rtol=1e-6, atol=1e-7, err_msg=name)


def test_the_exponential_bends_either_way():
    slow, fast = (curve("exponential", warmup_ratio=1.0, rate=rate) for rate in (5.0, -5.0))
    np.testing.assert_allclose(fast, 1 - slow[::-1], rtol=1e-5, atol=1e-6)


def test_a_steep_sigmoid_is_a_jump_at_half_of_the_rise():
    weights = curve("sigmoid", warmup_ratio=1.0, steepness=1e3)
    np.testing.assert_allclose(weights, np.array([0.0] * 20 + [0.5] + [1.0] * 20), atol=1e-5)


def test_the_exponential_of_rate_zero_is_linear():
    np.testing.assert_allclose(curve("exponential", rate=0.0), curve("linear"), rtol=1e-6)
    np.testing.assert_allclose(curve("exponential", rate=1e-3), curve("linear"), atol=1e-3)
