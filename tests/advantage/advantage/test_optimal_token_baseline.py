"""The optimal token baselines: hand cases, optimality, alignment, the tail, and the field that they read."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.advantage.batches import Batch, random_batch, to_the_left, with_scores

import dovetail
from dovetail.config import load
from dovetail_advantage.advantage._optimal_baseline import energy
from dovetail_advantage.advantage.dr_grpo import dr_grpo
from dovetail_advantage.advantage.optimal_token_baseline import optimal_token_baseline
from dovetail_advantage.advantage.optimal_token_baseline_corrected import optimal_token_baseline_corrected
from dovetail_advantage.advantage.tir_optimal_token_baseline import tir_optimal_token_baseline
from dovetail_advantage.advantage.tir_optimal_token_baseline_corrected import tir_optimal_token_baseline_corrected
from dovetail_advantage.field.sum_pi_squared import sum_pi_squared

PAIRS = [
    (optimal_token_baseline, optimal_token_baseline_corrected),
    (tir_optimal_token_baseline, tir_optimal_token_baseline_corrected),
]
FIELDS = ("token_rewards", "old_logps", "old_sum_pi_squared", "group_ids", "mask")


def read(batch: Batch, *more: str) -> dict[str, Any]:
    return {name: jnp.asarray(batch[name]) for name in (*FIELDS, *more)}


def coins(mask: list[list[int]], rewards: list[list[float]]) -> dict[str, Any]:
    """Return a batch of one group in which every token is one of two equally likely tokens, so each energy is 1/2."""
    shape = np.shape(mask)
    return {
        "token_rewards": jnp.array(rewards),
        "old_logps": jnp.log(jnp.full(shape, 0.5)),
        "old_sum_pi_squared": jnp.full(shape, 0.5),
        "group_ids": jnp.zeros(shape[0], jnp.int32),
        "mask": jnp.array(mask, bool),
    }


def test_by_hand():
    # W is 1/2, 1, 3/2 along each row. Position 1: returns 4, 1 and 1; 2: 4 and 1; 3: 4 alone.
    batch = coins([[1, 1, 1], [1, 1, 0], [1, 0, 0]], [[0.0, 0.0, 4.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    advantages = optimal_token_baseline(**batch)
    np.testing.assert_allclose(advantages, [[2, 1.5, 0], [-1, -1.5, 0], [-1, 0, 0]], atol=1e-6)
    advantages = optimal_token_baseline(**batch, handle_zero_tail=True)
    np.testing.assert_allclose(advantages, [[2, 1.5, 4], [-1, -1.5, 0], [-1, 0, 0]], atol=1e-6)


def test_tools_in_between_push_positions_apart_but_not_policy_steps():
    # The second token of row 1 is a tool token. By position, no other row has a token beside its second policy token.
    batch = coins([[1, 1, 0], [1, 0, 1]], [[0.0, 4.0, 0.0], [0.0, 0.0, 1.0]])
    by_position = optimal_token_baseline(**batch)
    np.testing.assert_allclose(by_position, [[1.5, 0, 0], [-1.5, 0, 0]], atol=1e-6)
    by_step = tir_optimal_token_baseline(**batch)
    np.testing.assert_allclose(by_step, [[1.5, 1.5, 0], [-1.5, 0, -1.5]], atol=1e-6)


@pytest.mark.parametrize("zero_tail", [True, False])
@pytest.mark.parametrize("pair", [0, 1])
def test_without_holes_positions_are_policy_steps(pair, zero_tail):
    batch = to_the_left(random_batch())
    more = ("is_weights",) * pair
    np.testing.assert_allclose(
        PAIRS[1][pair](**read(batch, *more), handle_zero_tail=zero_tail),
        PAIRS[0][pair](**read(batch, *more), handle_zero_tail=zero_tail),
        rtol=1e-6,
    )


def test_the_baseline_is_where_the_weighted_squared_advantage_is_least():
    """Its derivative with respect to the baseline, ∑ W·A, is zero at every position of every group."""
    batch = random_batch()
    advantages = optimal_token_baseline(**read(batch))
    weights = np.cumsum(energy(*(jnp.asarray(batch[name]) for name in ("old_logps", "old_sum_pi_squared", "mask"))), 1)
    for group in np.unique(batch["group_ids"]):
        of_group = batch["group_ids"] == group
        np.testing.assert_allclose((weights * np.asarray(advantages))[of_group].sum(axis=0), 0, atol=1e-5)


def test_equally_certain_tokens_of_equally_long_completions_have_the_groups_mean():
    batch = random_batch()
    batch = with_scores(batch | {"mask": np.ones_like(batch["mask"])}, batch["scores"])
    batch["old_logps"] = np.full_like(batch["old_logps"], np.log(0.5))
    batch["old_sum_pi_squared"] = np.full_like(batch["old_logps"], 0.5)
    expected = dr_grpo(*(jnp.asarray(batch[name]) for name in ("scores", "group_ids", "mask")))
    np.testing.assert_allclose(optimal_token_baseline(**read(batch)), expected, atol=1e-6)


@pytest.mark.parametrize(("plain", "corrected"), PAIRS)
def test_off_policy_weights_of_one_change_nothing(plain, corrected):
    batch = random_batch()
    on_policy = read(batch | {"is_weights": np.ones_like(batch["is_weights"])}, "is_weights")
    np.testing.assert_array_equal(corrected(**on_policy), plain(**read(batch)))
    assert not np.allclose(corrected(**read(batch, "is_weights")), plain(**read(batch)))


def test_off_policy_weights_count_squared():
    batch, weights = coins([[1], [1]], [[1.0], [0.0]]), jnp.array([[1.0], [2.0]])
    np.testing.assert_allclose(
        optimal_token_baseline_corrected(**batch, is_weights=weights), [[0.8], [-0.2]], rtol=1e-6
    )


def test_certain_tokens_have_no_gradient_and_no_baseline():
    batch = coins([[1], [1]], [[1.0], [0.5]])
    batch |= {"old_logps": jnp.zeros((2, 1)), "old_sum_pi_squared": jnp.ones((2, 1))}
    np.testing.assert_array_equal(optimal_token_baseline(**batch), [[1.0], [0.5]])
    assert np.isfinite(optimal_token_baseline(**batch, epsilon=0.0)).all()


def test_energy_is_the_squared_gradient_of_the_log_probability_by_the_logits():
    logits = jax.random.normal(jax.random.key(0), (4, 6))
    tokens = jnp.array([0, 5, 2, 2])
    gradients = jax.vmap(jax.grad(lambda z, y: jax.nn.log_softmax(z)[y]))(logits, tokens)
    logps = jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[:, None], axis=1)
    proxy = energy(logps, sum_pi_squared(logits)[:, None], jnp.ones((4, 1), bool))
    np.testing.assert_allclose(proxy[:, 0], jnp.sum(jnp.square(gradients), axis=1), rtol=1e-5)


@pytest.mark.parametrize("shift", [0.0, 1e3, -1e3])
def test_sum_pi_squared_of_large_logits(shift):
    logits = jax.random.normal(jax.random.key(1), (3, 7)) * 3
    expected = jnp.sum(jnp.square(jax.nn.softmax(logits)), axis=1)
    np.testing.assert_allclose(sum_pi_squared(logits + shift), expected, rtol=2e-4)


@pytest.mark.parametrize("name", ["optimal_token_baseline", "tir_optimal_token_baseline"])
def test_the_field_comes_from_the_forward_pass_of_the_policy_at_collection(name):
    plan = load(None, [f"train.advantage={name}", "train.policy_loss=reinforce"]).plan
    (scoring,) = plan.passes_of(live=False)
    assert scoring.role == "policy"
    assert set(scoring.quantities) == {"logps", "sum_pi_squared"}


def test_the_corrected_ones_need_a_correction():
    with pytest.raises(dovetail.DovetailError, match=r"reads 'is_weights', which a correction provides"):
        load(None, ["train.advantage=optimal_token_baseline_corrected"])
