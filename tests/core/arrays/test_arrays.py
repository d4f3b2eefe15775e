"""The helpers that formulas share: their public names and their results."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dovetail import arrays
from dovetail.arrays import Groups, gae_trace, masked, mean_over_tokens, per_token, returns_to_go, whiten

PUBLIC = [
    "Groups",
    "LOG_RATIO_BOUND",
    "LOG_SEQUENCE_RATIO_BOUND",
    "Level",
    "Turns",
    "at_finite",
    "bounded",
    "carried",
    "clip",
    "full_precision",
    "gae_trace",
    "importance_ratio",
    "in_units_of",
    "indicator",
    "latest",
    "log_ratio",
    "masked",
    "mean_over_tokens",
    "per_token",
    "returns_to_go",
    "whiten",
]
RNG = np.random.default_rng(0)
MASK = RNG.random((5, 7)) < 0.7
MASK[2] = False


def test_these_names_are_public() -> None:
    assert sorted(arrays.__all__) == PUBLIC


@pytest.mark.parametrize("garbage", [np.nan, np.inf, -1e30])
def test_neither_a_value_nor_a_derivative_sees_what_lies_outside_the_mask(garbage: float) -> None:
    x = jnp.where(MASK, RNG.normal(size=MASK.shape).astype(np.float32), garbage)

    def total(x: jax.Array) -> jax.Array:
        return jnp.sum(jnp.exp(masked(x, jnp.asarray(MASK))))

    value, gradient = jax.value_and_grad(total)(x)
    assert jnp.isfinite(value)
    np.testing.assert_allclose(gradient, np.where(MASK, np.exp(np.where(MASK, x, 0.0)), 0.0), rtol=1e-6)


def test_statistics_of_groups_are_those_of_a_loop_over_them() -> None:
    ids, scores = np.array([4, 1, 4, 1, 4]), RNG.normal(size=5).astype(np.float32)
    groups, live = Groups.of(jnp.asarray(ids), jnp.asarray(MASK)), MASK.any(1)
    scores[~live] = np.nan
    for row in np.flatnonzero(live):
        members = scores[(ids == ids[row]) & live]
        np.testing.assert_allclose(groups.sizes[row], len(members))
        np.testing.assert_allclose(groups.deviations(scores)[row], scores[row] - members.mean(), atol=1e-6)
        np.testing.assert_allclose(groups.std(scores)[row], members.std(ddof=1), rtol=1e-5)
    assert groups.deviations(scores)[2] == 0


def test_a_constant_group_has_no_spread_and_a_finite_gradient() -> None:
    groups = Groups.whole(jnp.ones((3, 2), bool))
    value, gradient = jax.value_and_grad(lambda x: jnp.sum(groups.std(x)))(jnp.full(3, 0.1))
    assert value == 0
    assert not gradient.any()


@pytest.mark.parametrize("lam", [0.0, 0.9, 1.0])
def test_a_trace_is_that_of_a_loop_over_the_policy_tokens(lam: float) -> None:
    rewards, values = RNG.normal(size=(2, *MASK.shape)).astype(np.float32)
    found = gae_trace(*map(jnp.asarray, (rewards, values, MASK)), gamma=0.8, lam=lam)
    expected = np.zeros_like(rewards)
    for row, mask in enumerate(MASK):
        value = advantage = 0.0
        for token in np.flatnonzero(mask)[::-1]:
            error = rewards[row, token] + 0.8 * value - values[row, token]
            value, advantage = values[row, token], error + 0.8 * lam * advantage
            expected[row, token] = advantage
    np.testing.assert_allclose(found, expected, atol=1e-5)
    if lam == 1.0:
        zero = jnp.zeros_like(found)
        returns = returns_to_go(jnp.asarray(rewards), jnp.asarray(MASK), gamma=0.8)
        np.testing.assert_allclose(gae_trace(rewards, zero, jnp.asarray(MASK), gamma=0.8, lam=1.0), returns)


def test_the_mean_of_a_long_completion_in_half_precision_is_taken_in_full() -> None:
    ones = jnp.ones((1, 300), jnp.bfloat16)
    found = mean_over_tokens(ones, jnp.arange(300)[None] < 257)
    assert (found.dtype, found.item()) == (jnp.float32, 1.0)


def test_whitening_and_means_are_over_the_policy_tokens() -> None:
    x = RNG.normal(2.0, 3.0, MASK.shape).astype(np.float32)
    mask = jnp.asarray(MASK)
    whitened = np.asarray(whiten(jnp.asarray(x), mask))
    np.testing.assert_allclose([whitened[MASK].mean(), whitened[MASK].std(ddof=1)], [0.0, 1.0], atol=1e-6)
    assert not whitened[~MASK].any()
    means = mean_over_tokens(jnp.asarray(x), mask)[:, 0]
    np.testing.assert_allclose(means[0], x[0][MASK[0]].mean(), rtol=1e-6)
    assert means[2] == 0
    np.testing.assert_array_equal(per_token(means, mask), np.where(MASK, np.asarray(means)[:, None], 0.0))
