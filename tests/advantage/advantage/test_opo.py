"""Advantage `opo`: hand case, and the optimality of its baseline."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from tests.advantage.batches import random_batch

from dovetail_advantage.advantage.dr_grpo import dr_grpo
from dovetail_advantage.advantage.opo import opo


def test_by_hand():
    # Lengths 1, 3 and 2: baseline (1·6 + 3·2 + 2·3)/6 = 3.
    mask = jnp.array([[True, False, False, False], [True, True, False, True], [False, True, True, False]])
    advantages = opo(jnp.array([6.0, 2.0, 3.0]), jnp.array([7, 7, 7]), mask)
    np.testing.assert_allclose(advantages, np.where(mask, [[3], [-1], [0]], 0))


def test_it_is_zero_on_average_over_the_tokens_of_a_group():
    batch = random_batch()
    advantages = opo(*(jnp.asarray(batch[name]) for name in ("scores", "group_ids", "mask")))
    for group in np.unique(batch["group_ids"]):
        assert abs(np.asarray(advantages)[batch["group_ids"] == group].sum()) < 1e-5


def test_completions_of_one_length_have_the_plain_mean():
    batch = random_batch()
    scores, ids, mask = jnp.asarray(batch["scores"]), jnp.asarray(batch["group_ids"]), jnp.ones((9, 4), bool)
    np.testing.assert_allclose(opo(scores, ids, mask), dr_grpo(scores, ids, mask), atol=1e-6)
