"""Reward shaping `overlong`."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.core.step.test_update import collect, make, sampled

import dovetail
from dovetail_reward.reward_shaping.overlong import overlong

LENGTHS = [0, 1, 6, 7, 8, 10, 12]
PENALTIES = [0.0, 0.0, 0.0, -0.25, -0.5, -1.0, -1.0]


def batch(width: int = 12):
    lengths = jnp.array(LENGTHS)
    mask = jnp.arange(width)[None] < lengths[:, None]
    last = jnp.arange(width)[None] == lengths[:, None] - 1
    return jnp.where(last, 2.0, 0.0), lengths, mask


def test_by_hand():
    rewards, metrics = overlong(*batch(), max_tokens=10, buffer=4)
    np.testing.assert_array_equal(metrics["penalty"], PENALTIES)
    np.testing.assert_array_equal(metrics["overlong"], [0, 0, 0, 1, 1, 1, 1])
    np.testing.assert_array_equal(rewards.sum(axis=1), [0.0] + [2.0 + p for p in PENALTIES[1:]])
    for row, length in enumerate(LENGTHS[1:], 1):
        assert np.flatnonzero(rewards[row]).tolist() == [length - 1]


def test_penalty_scales_and_a_buffer_of_zero_punishes_only_beyond_the_limit():
    _, metrics = overlong(*batch(), max_tokens=10, buffer=4, penalty=0.5)
    np.testing.assert_array_equal(metrics["penalty"], 0.5 * np.array(PENALTIES))
    _, metrics = overlong(*batch(), max_tokens=10, buffer=0)
    np.testing.assert_array_equal(metrics["penalty"], [0, 0, 0, 0, 0, 0, -1])


def test_it_is_verls_dapo_manager_up_to_the_limit():
    lengths = np.arange(1, 11)
    mask = np.arange(10) < lengths[:, None]
    _, metrics = overlong(jnp.zeros((10, 10)), jnp.array(lengths), jnp.array(mask), max_tokens=10, buffer=4, penalty=2)
    np.testing.assert_allclose(metrics["penalty"], np.minimum(-(lengths - 6) / 4 * 2, 0), rtol=1e-6)


def test_the_last_policy_token_of_a_row_with_holes():
    mask = jnp.array([[True, False, True, False, False], [False] * 5])
    garbage = jnp.where(mask, 0.0, jnp.nan)
    rewards, metrics = overlong(garbage, jnp.array([2, 0]), mask, max_tokens=2, buffer=1)
    np.testing.assert_array_equal(rewards, [[0, 0, -1, 0, 0], [0] * 5])
    np.testing.assert_array_equal(metrics["penalty"], [-1, 0])


def test_padding_changes_nothing():
    narrow, wide = (overlong(*batch(width), max_tokens=10, buffer=4)[0] for width in (12, 20))
    np.testing.assert_array_equal(wide[:, :12], narrow)
    np.testing.assert_array_equal(wide[:, 12:], 0)


@pytest.mark.parametrize(("given", "returned"), [(jnp.bfloat16, jnp.float32), (jnp.float64, jnp.float64)])
def test_dtypes_and_jit(given, returned):
    with jax.enable_x64(True):
        rewards, lengths, mask = batch()
        compiled = jax.jit(overlong, static_argnames=("max_tokens", "buffer"))
        shaped, metrics = compiled(rewards.astype(given), lengths, mask, max_tokens=10, buffer=4)
        assert shaped.dtype == metrics["penalty"].dtype == returned
        np.testing.assert_allclose(shaped.sum(axis=1), [0.0] + [2.0 + p for p in PENALTIES[1:]])


def test_interface():
    component = dovetail.get("reward_shaping", "overlong")
    assert component.reads == ("token_rewards", "lengths", "mask")
    assert component.static == {"max_tokens", "buffer"}


@pytest.mark.parametrize("advantage", ["grpo", "rloo", "dr_grpo"])
def test_it_reaches_estimators_that_read_no_tokens(advantage):
    shaping = ("train.reward_shaping=overlong", "reward_shaping.overlong.max_tokens=5")
    advantages, penalties = [], []
    for extra in ((), (*shaping, "reward_shaping.overlong.buffer=4")):
        algorithm, graphdef, params = make(f"train.advantage={advantage}", *extra)
        given = sampled()
        batch, metrics = collect(algorithm, graphdef, params, given)
        np.testing.assert_array_equal(batch["scores"], given["scores"])
        advantages.append(batch["advantages"])
        penalties.append(metrics.get("reward_shaping/penalty"))
    assert penalties[0] is None
    assert penalties[1][0] < 0
    assert np.abs(advantages[1] - advantages[0]).max() > 0.01
