"""Group filters decide for whole groups, whatever the labels of the groups and the values in rows without a group."""

import jax.numpy as jnp

import dovetail

SCORES = jnp.array([1.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.5, 1.0])
GROUPS = jnp.array([5, 5, -1, -1, 3, 3, 9, 9])
MASK = jnp.ones((8, 3), bool)


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
