"""Completion filter `void_turns`: an episode that is left out does not count anywhere, especially not in a baseline."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from tests.core.step.test_update import collect, make, sampled

import dovetail
from dovetail.config import load
from dovetail.errors import PlanError

MASK = jnp.array([[True, False, True], [True, True, False], [True, False, False]])


def test_a_case_computed_by_hand():
    void = jnp.array([[False, True], [False, False], [True, True]])
    kept, metrics = dovetail.get("completion_filter", "void_turns")(void_turns=void, mask=MASK)
    assert kept.tolist() == [[False] * 3, [True, True, False], [False] * 3]
    assert metrics["dropped"].tolist() == [1, 0, 1]


@pytest.mark.parametrize("advantage", ["grpo", "rloo"])
def test_the_others_learn_as_if_it_had_never_been_there(advantage):
    given = sampled()
    rows, turns = given["mask"].shape[0], 2
    there = {"turns": jnp.zeros_like(given["tokens"]), "turn_mask": jnp.ones((rows, turns), bool)}
    there["turn_rewards"] = jnp.zeros((rows, turns))
    void = np.zeros((rows, turns), bool)
    void[1, 1] = void[6, 0] = True
    chosen = ("train.agent_loop=tool_agent", "train.completion_filter=['void_turns']")
    algorithm, graphdef, weights = make(f"train.advantage={advantage}", *chosen)
    batch, metrics = collect(algorithm, graphdef, weights, given | there | {"void_turns": jnp.asarray(void)})
    plain, graphdef, weights = make(f"train.advantage={advantage}")
    gone = jnp.asarray(void.any(axis=1))[:, None]
    expected, _ = collect(plain, graphdef, weights, given | {"mask": given["mask"] & ~gone})
    np.testing.assert_array_equal(batch["mask"], expected["mask"])
    np.testing.assert_allclose(batch["advantages"], expected["advantages"], atol=1e-6)
    dropped, count = metrics["completion_filter/dropped"]
    assert dropped / count == pytest.approx(2 / rows)


def test_it_needs_episodes_of_several_turns():
    with pytest.raises(
        PlanError, match=r"reads 'void_turns', which an agent loop with turns provides; set train.agent"
    ):
        load(None, ["train.completion_filter=['void_turns']"])
    turns = ["train.agent_loop=tool_agent", "train.tools=['calculator']"]
    config = load(None, [*turns, "train.completion_filter=['void_turns']"])
    assert [call.label for call in config.plan.at("passes")] == ["train.completion_filter = void_turns"]
