"""Reward shapings by turns and by tool calls: `turn_discount`, `turn_penalty`, `tool_cosine`."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.golden import Fact, load

from dovetail_advantage.advantage.dr_grpo import dr_grpo
from dovetail_reward.reward_shaping.tool_cosine import tool_cosine
from dovetail_reward.reward_shaping.turn_discount import turn_discount
from dovetail_reward.reward_shaping.turn_penalty import turn_penalty

MASK = jnp.array([[1, 0, 1, 1], [1, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 0]]) == 1
TURNS = jnp.array([[0, 0, 1, 2], [0, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]])
THERE = jnp.array([[1, 1, 1], [1, 0, 0], [1, 1, 0], [1, 1, 1]]) == 1
IDS = jnp.array([3, 3, 7, 3])
LAST = jnp.array([[0.0, 0, 0, 1], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]])


def cases():
    """Return the golden cases of this file with their arrays by name."""
    found, arrays = load("agents")
    mine = [case for case in found if case["function"] == "GRPOAlgorithm.score_group"]
    return [(c, {name: arrays[key] for name, key in (c["inputs"] | c["outputs"]).items()}) for c in mine]


def facts() -> list[Fact]:
    """Return the cases of this file."""
    return [Fact("agents", f"{case['source']}, {case['function']}", case["id"]) for case, _ in cases()]


def test_a_score_is_discounted_by_the_turns_before_it_and_so_is_what_a_turn_earned():
    earned = 8.0 * LAST + jnp.where(MASK & (TURNS == 0), 2.0, 0.0)
    found = turn_discount(earned, TURNS, MASK, discount=0.5)
    assert found.tolist() == [[2, 0, 0, 2], [2, 10, 0, 0], [2, 0, 4, 0], [0, 0, 0, 0]]
    np.testing.assert_array_equal(turn_discount(earned, TURNS, MASK, discount=1.0), earned)
    at_once = turn_discount(earned, TURNS, MASK, discount=0.0)
    assert at_once.tolist() == [[2, 0, 0, 0], [2, 10, 0, 0], [2, 0, 0, 0], [0, 0, 0, 0]]


def test_turns_cost_where_the_prompt_is_solved():
    scores = jnp.array([1.0, 0.0, 0.0, jnp.nan])
    rewards, metrics = turn_penalty(LAST, scores, THERE, IDS, MASK, weight=0.6)
    # group 3: mean 1/2, at most 3 turns; the empty row is not in it; group 7 is never solved
    np.testing.assert_allclose(metrics["penalty"], [-0.3, -0.1, 0, 0], rtol=1e-6)
    np.testing.assert_allclose(rewards.sum(axis=1), [0.7, 0.9, 1, 0], rtol=1e-6)
    _, metrics = turn_penalty(LAST, scores - 2.0, THERE, IDS, MASK, weight=0.6)
    np.testing.assert_array_equal(metrics["penalty"], 0)


def test_prime_rls_numbers():
    with jax.enable_x64(True):
        for case, x in cases():
            mask, scores = jnp.asarray(x["mask"]), jnp.asarray(x["scores"])
            ids, there = jnp.asarray(x["group_ids"]), jnp.asarray(x["turn_mask"])
            weight = case["config"]["num_turns_weight"]
            shaped, _ = turn_penalty(jnp.zeros(mask.shape), scores, there, ids, mask, weight=weight)
            found = dr_grpo(scores + shaped.sum(axis=1), ids, mask)
            expected = np.where(x["mask"], x["advantages"][:, None], 0)
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6, err_msg=case["id"])  # in float32


@pytest.mark.parametrize(
    ("calls", "scores", "factors"),
    [
        ([2, 4, 1, 0], [1, 1, 1, 0], [np.sin(np.pi * 2 / 3), np.sin(np.pi * 4 / 5), 1, 0]),  # n = 1
        ([0, 2, 0, 4], [1, 1, 0, 0], [1, np.cos(np.pi / 4), 1, np.cos(np.pi / 3)]),  # n = 0, a = 4
        ([3, 5, 0, 1], [0, 0, 0, 0], [1, 1, 1, 1]),  # nobody says how many it takes
    ],
)
def test_calls_are_worth_most_at_the_fewest_that_succeeded(calls, scores, factors):
    rewards, mask = jnp.ones((4, 2)), jnp.ones((4, 2), bool)
    found, metrics = tool_cosine(rewards, jnp.array(scores, float), jnp.array(calls), jnp.zeros(4, int), mask)
    np.testing.assert_allclose(metrics["factor"], factors, atol=1e-6)
    np.testing.assert_allclose(found, np.array(factors)[:, None] * np.ones((4, 2)), atol=1e-6)


def test_calls_alone_say_what_they_cost_where_the_best_is_none():
    """OTC-PPO: the same for every prompt, whoever has succeeded."""
    calls, mask = jnp.array([0, 1, 2, 9]), jnp.array([[True], [True], [True], [False]])
    _, metrics = tool_cosine(jnp.ones((4, 1)), jnp.zeros(4), calls, jnp.arange(4), mask, best="zero", smoothing=2.0)
    np.testing.assert_allclose(metrics["factor"], [1, np.cos(np.pi / 4), np.cos(np.pi / 3), 0], atol=1e-6)
