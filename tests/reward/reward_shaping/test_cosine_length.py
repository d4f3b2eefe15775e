"""Reward shaping `cosine_length`."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

from dovetail_reward.reward_shaping.cosine_length import cosine_length

LENGTHS = [0, 1, 2, 5, 8, 9]


def batch(scores, width=9):
    lengths = jnp.array(LENGTHS)
    mask = jnp.arange(width)[None] < lengths[:, None]
    return jnp.where(mask, 0.25, jnp.nan), jnp.full(len(LENGTHS), scores), lengths, mask


@pytest.mark.parametrize(("score", "short", "long"), [(1.0, 1.0, 0.0), (0.0, -10.0, 0.0)])
def test_by_hand(score, short, long):
    rewards, metrics = cosine_length(*batch(score), max_tokens=8)
    shapes = [(1 + math.cos(math.pi * length / 8)) / 2 for length in (1, 2, 5)]
    expected = [0.0, *(long + (short - long) * shape for shape in shapes), -10.0, -10.0]
    np.testing.assert_allclose(metrics["added"], expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(rewards.sum(1), np.array(expected) + 0.25 * np.array(LENGTHS), rtol=1e-5, atol=1e-6)
    for row, length in enumerate(LENGTHS[1:], 1):
        assert np.flatnonzero(np.asarray(rewards[row]) != 0.25).tolist()[:1] == [length - 1]


def test_right_ones_lose_and_wrong_ones_gain_by_length():
    right, wrong = (cosine_length(*batch(score), max_tokens=100)[1]["added"][1:] for score in (1.0, 0.0))
    assert np.all(np.diff(right) < 0)
    assert np.all(np.diff(wrong) > 0)


OF_TRL = {"right_short": 0.0, "right_long": -0.5, "wrong_short": -1.0, "wrong_long": -0.5, "exceeded": None}


@pytest.mark.parametrize(("score", "length", "reward"), [(1, 50, 0.75), (0, 50, -0.75), (1, 100, 0.5), (0, 120, -0.5)])
def test_the_values_of_trl(score, length, reward):
    """Those of its example, and those beyond its limit; it puts them in the place of the score."""
    mask = jnp.ones((1, length), bool)
    inputs = jnp.zeros((1, length)), jnp.array([float(score)]), jnp.array([length]), mask
    _, metrics = cosine_length(*inputs, max_tokens=100, **OF_TRL)
    np.testing.assert_allclose(score + metrics["added"], [reward], rtol=1e-5)


def test_padding_changes_nothing():
    narrow, wide = (cosine_length(*batch(1.0, width), max_tokens=8)[0] for width in (9, 14))
    np.testing.assert_array_equal(wide[:, :9], narrow)
    np.testing.assert_array_equal(wide[:, 9:], 0)
