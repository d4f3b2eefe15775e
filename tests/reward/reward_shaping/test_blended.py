"""Reward shaping by what models think: `reference_quality`, `representation_alignment`, and the field it reads."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dovetail
from dovetail_reward.field.mean_hidden_states import mean_hidden_states
from dovetail_reward.reward_shaping.reference_quality import reference_quality
from dovetail_reward.reward_shaping.representation_alignment import representation_alignment

MASK = jnp.array([[True, False, True, False], [True, True, True, True], [False] * 4])
REWARDS = jnp.array([[0.0, 7.0, 1.0, 7.0], [0.5, 0.0, 0.0, 2.0], [7.0] * 4])
LOGPS = jnp.log(jnp.array([[0.25, 0.9, 1.0, 0.9], [0.5] * 4, [0.9] * 4]))
WEIGHT = jnp.float32(0.25)
# quality: √(0.25·1) and 0.5


def test_quality_by_hand():
    rewards, metrics = reference_quality(REWARDS, LOGPS, MASK, WEIGHT)
    np.testing.assert_allclose(metrics["quality"], [0.5, 0.5, 0.0], rtol=1e-6)
    expected = [[0.125, 0, 0.875, 0], [0.5, 0.125, 0.125, 1.625], [0] * 4]
    np.testing.assert_allclose(rewards, expected, rtol=1e-6)
    last, _ = reference_quality(REWARDS, LOGPS, MASK, WEIGHT, on="last")
    np.testing.assert_allclose(last, [[0, 0, 0.875, 0], [0.375, 0, 0, 1.625], [0] * 4], rtol=1e-6)


def test_weights_of_zero_and_one():
    np.testing.assert_array_equal(
        reference_quality(REWARDS, LOGPS, MASK, jnp.float32(0))[0], jnp.where(MASK, REWARDS, 0)
    )
    np.testing.assert_allclose(reference_quality(REWARDS, LOGPS, MASK, jnp.float32(1))[0], jnp.where(MASK, 0.5, 0))


STATES = jnp.array([[3.0, 4.0], [0.0, 2.0], [1.0, 0.0]])
ANSWERS = jnp.array([[4.0, 3.0], [0.0, -1.0], [1.0, 0.0]])
ENTROPY = jnp.full((3, 4), 1.5)
# cosines: 24/25, -1, 1


def test_alignment_by_hand():
    rewards, metrics = representation_alignment(REWARDS, ENTROPY, STATES, ANSWERS, MASK, WEIGHT)
    np.testing.assert_allclose(metrics["cosine"], [0.96, -1, 1], rtol=1e-6)
    assert metrics["active"] == 1
    np.testing.assert_allclose(rewards, [[0, 0, 1.24, 0], [0.5, 0, 0, 1.75], [0] * 4], rtol=1e-6)


def test_a_policy_that_is_sure_gets_no_bonus():
    rewards, metrics = representation_alignment(REWARDS, ENTROPY, STATES, ANSWERS, MASK, WEIGHT, entropy_threshold=1.5)
    np.testing.assert_array_equal(rewards, jnp.where(MASK, REWARDS, 0))
    assert metrics["active"] == 0


def test_no_states_no_bonus():
    rewards, metrics = representation_alignment(REWARDS, ENTROPY, STATES, 0 * ANSWERS, MASK, WEIGHT)
    np.testing.assert_array_equal(metrics["cosine"], 0)
    np.testing.assert_array_equal(rewards, jnp.where(MASK, REWARDS, 0))


def test_the_mean_over_policy_tokens():
    states = jnp.arange(24.0).reshape(3, 4, 2)
    found = mean_hidden_states(states.at[0, 1].set(jnp.nan), MASK)
    np.testing.assert_allclose(found, [[2, 3], [11, 12], [0, 0]])
    assert mean_hidden_states(states.astype(jnp.bfloat16), MASK).dtype == jnp.float32


def call(name, garbage=None, columns=0):
    """Call a shaping with garbage outside the mask, and with masked columns on the right."""
    fields = {
        "token_rewards": REWARDS,
        "ref_logps": LOGPS,
        "entropy": ENTROPY,
        "mean_hidden_states": STATES,
        "answer_mean_hidden_states": ANSWERS,
        "mask": MASK,
        "schedule_weight": WEIGHT,
    }
    for field in ("token_rewards", "ref_logps", "entropy"):
        spoilt = fields[field] if garbage is None else jnp.where(MASK, fields[field], garbage)
        fields[field] = jnp.pad(spoilt, [(0, 0), (0, columns)], constant_values=jnp.nan)
    fields["mask"] = jnp.pad(MASK, [(0, 0), (0, columns)])
    component = dovetail.get("reward_shaping", name)
    return jax.jit(component.load())(*(fields[read] for read in component.reads))


@pytest.mark.parametrize("name", ["reference_quality", "representation_alignment"])
@pytest.mark.parametrize("garbage", [jnp.nan, jnp.inf, 1e30])
def test_what_is_outside_the_mask_changes_nothing(name, garbage):
    jax.tree.map(np.testing.assert_array_equal, call(name, garbage), call(name))
    (rewards, metrics), (expected, same) = call(name, garbage, columns=2), call(name)
    np.testing.assert_array_equal(rewards[:, :4], expected)
    np.testing.assert_array_equal(rewards[:, 4:], 0)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), metrics, same)
