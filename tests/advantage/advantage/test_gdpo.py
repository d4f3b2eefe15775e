"""Advantage `gdpo`: hand case, abstentions, weights, and its relation to `grpo`."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from tests.advantage.batches import random_batch

import dovetail
from dovetail.arrays import whiten
from dovetail_advantage.advantage.gdpo import gdpo
from dovetail_advantage.advantage.grpo import grpo

TABLE = jnp.array([[0.0, 30.0], [2.0, 10.0], [1.0, 20.0], [4.0, 5.0], [6.0, 5.0]])
IDS = jnp.array([3, 3, 3, 8, 8])
"""Deviations in units of the group's: -1, 1, 0 and 1, -1, 0 in group 3; ∓1/√2 and 0 in group 8."""
MASK = jnp.ones((5, 1), bool)


def read(batch: Any) -> dict[str, Any]:
    return {name: jnp.asarray(batch[name]) for name in ("score_table", "group_ids", "mask")}


@pytest.mark.parametrize("over", ["tokens", "completions"])
def test_by_hand(over: Any) -> None:
    totals = np.array([-1 + 0.5, 1 - 0.5, 0, -1 / np.sqrt(2), 1 / np.sqrt(2)])
    advantages = gdpo(TABLE, IDS, MASK, weights=(1.0, 0.5), epsilon=0.0, over=over)
    np.testing.assert_allclose(advantages[:, 0], totals / totals.std(ddof=1), atol=1e-6)


def test_a_longer_completion_counts_as_often_as_it_has_tokens_or_once():
    mask = jnp.array([[True, True, True]] + [[True, False, False]] * 4)
    of_tokens = np.asarray(gdpo(TABLE, IDS, mask, weights=(1.0, 0.5)))
    assert abs(of_tokens.sum()) < 1e-5
    assert abs(of_tokens[:, 0].sum()) > 0.1
    of_completions = np.asarray(gdpo(TABLE, IDS, mask, weights=(1.0, 0.5), over="completions"))
    assert abs(of_completions[:, 0].sum()) < 1e-5


def test_a_single_reward_is_grpo_whitened():
    batch = random_batch()
    batch["score_table"] = batch["scores"][:, None]
    plain = grpo(*(jnp.asarray(batch[name]) for name in ("scores", "group_ids", "mask")))
    np.testing.assert_allclose(gdpo(**read(batch)), whiten(plain, jnp.asarray(batch["mask"])), atol=1e-6)


def test_the_unit_of_a_reward_makes_no_difference():
    batch = random_batch()
    louder = batch | {"score_table": batch["score_table"] * np.array([1, 100], np.float32)}
    np.testing.assert_allclose(gdpo(**read(louder), epsilon=0.0), gdpo(**read(batch), epsilon=0.0), atol=1e-5)


def test_an_abstention_leaves_a_completion_out_of_that_rewards_group_and_sum():
    # Without row 0 the second reward has deviations ∓1/√2 in group 3.
    table = TABLE.at[0, 1].set(jnp.nan)
    totals = np.array([-1, 1 - 1 / np.sqrt(2), 1 / np.sqrt(2), -1 / np.sqrt(2), 1 / np.sqrt(2)])
    advantages = gdpo(table, IDS, MASK, epsilon=0.0, over="completions")
    np.testing.assert_allclose(advantages[:, 0], (totals - totals.mean()) / totals.std(ddof=1), atol=1e-6)


def test_one_weight_for_each_reward():
    with pytest.raises(dovetail.DovetailError) as caught:
        gdpo(TABLE, IDS, MASK, weights=(1.0, 2.0, 3.0))
    assert str(caught.value) == (
        "advantage.gdpo.weights has 3 numbers, but train.rewards names 2 rewards; give one for each, in the order of"
        " train.rewards"
    )
    with pytest.raises(dovetail.DovetailError, match=r"has 1 number, but train\.rewards names 2 rewards"):
        gdpo(TABLE, IDS, MASK, weights=(1.0,))
