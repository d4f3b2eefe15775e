"""Group filters answer for whole groups, whatever the labels and whatever stands in rows of no group."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dovetail

SCORES = jnp.array([1.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.5, 1.0])
GROUPS = jnp.array([5, 5, -1, -1, 3, 3, 9, 9])
MASK = jnp.ones((8, 3), bool)
NAMES = dovetail.names("group_filter")


def test_constant_groups_are_left_out():
    kept = dovetail.get("group_filter", "nonzero_variance")(SCORES, GROUPS, MASK)
    assert kept.tolist() == [True, True, False, False, False, False, True, True]


def test_a_small_spread_can_be_no_spread():
    kept = dovetail.get("group_filter", "nonzero_variance")(SCORES, GROUPS, MASK, tolerance=0.6)
    assert kept.tolist() == [True, True, False, False, False, False, False, False]


def test_the_band_is_open_on_both_sides():
    band = dovetail.get("group_filter", "pass_rate_band")
    assert band(SCORES, GROUPS, MASK).tolist() == [True, True, False, False, False, False, True, True]
    assert band(SCORES, GROUPS, MASK, low=0.5, high=1.0).tolist() == [False] * 8
    assert band(SCORES, GROUPS, MASK, success_at=0.5).tolist() == [True, True] + [False] * 6


@pytest.mark.parametrize("name", NAMES)
def test_every_group_is_kept_or_left_out_as_a_whole(name):
    filter_ = dovetail.get("group_filter", name)
    kept = np.asarray(filter_(SCORES, GROUPS, MASK))
    for label in set(GROUPS.tolist()):
        assert len(set(kept[np.asarray(GROUPS) == label])) == 1
    np.testing.assert_array_equal(jax.jit(filter_.load())(SCORES, GROUPS, MASK), kept)


@pytest.mark.parametrize("name", NAMES)
def test_order_does_not_matter(name):
    order = np.random.default_rng(0).permutation(8)
    filter_ = dovetail.get("group_filter", name)
    np.testing.assert_array_equal(
        filter_(SCORES[order], GROUPS[order], MASK[order]), np.asarray(filter_(SCORES, GROUPS, MASK))[order]
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_completion_without_a_score_decides_nothing(name):
    filter_ = dovetail.get("group_filter", name)
    scores, groups = jnp.append(SCORES, jnp.nan), jnp.append(GROUPS, 3)
    mask = jnp.concatenate([MASK, jnp.zeros((1, 3), bool)])
    np.testing.assert_array_equal(filter_(scores, groups, mask)[:8], filter_(SCORES, GROUPS, MASK))
