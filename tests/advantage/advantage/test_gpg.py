"""Advantage `gpg`: hand cases for both ways of counting."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from dovetail_advantage.advantage.gpg import gpg

SCORES = jnp.array([1.0, 0.0, 1.0, 1.0, 0.0, 0.0])
GROUP_IDS = jnp.array([4, 4, 6, 6, 8, 8])
MASK = jnp.ones((6, 1), bool)


@pytest.mark.parametrize(("count", "alpha"), [("varied", 6 / 2), ("nonzero", 6 / 3)])
def test_by_hand(count, alpha):
    advantages = gpg(SCORES, GROUP_IDS, MASK, f_norm=2.0, count=count)
    np.testing.assert_allclose(advantages[:, 0], np.array([0.5, -0.5, 0, 0, 0, 0]) * alpha / 2)


def test_the_mean_gradient_does_not_shrink_as_more_prompts_are_solved():
    half_solved = gpg(SCORES[:2], GROUP_IDS[:2], MASK[:2])
    with_others = gpg(SCORES, GROUP_IDS, MASK)
    np.testing.assert_allclose(np.abs(with_others).mean(), np.abs(half_solved).mean())


@pytest.mark.parametrize("count", ["varied", "nonzero"])
def test_a_batch_in_which_nothing_counts_gives_zero(count):
    np.testing.assert_array_equal(gpg(jnp.zeros(6), GROUP_IDS, MASK, count=count), 0)
