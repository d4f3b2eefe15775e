"""Advantage `gigpo`: hand cases, and its result without comparable states."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from tests.advantage.episodes import episodes, read

from dovetail_advantage.advantage.dr_grpo import dr_grpo
from dovetail_advantage.advantage.gigpo import gigpo

READS = ("scores", "token_rewards", "turns", "anchor_ids", "group_ids", "mask")


def test_by_hand():
    # Two episodes of two turns and one of one; turn 0 is from the same state in all, and so are turns 1.
    mask = jnp.array([[1, 0, 1, 1], [1, 0, 1, 0], [1, 1, 0, 0]]) == 1
    turns = jnp.array([[0, 0, 1, 1], [0, 0, 1, 0], [0, 0, 0, 0]])
    rewards = jnp.array([[1.0, 9.0, 0.0, 4.0], [0.0, 9.0, 2.0, 0.0], [0.0, 3.0, 9.0, 9.0]])
    scores, ids = jnp.array([5.0, 2.0, 3.0]), jnp.array([7, 7, 7])
    found, metrics = gigpo(scores, rewards, turns, jnp.array([[8, 9], [8, 9], [8, -1]]), ids, mask, gamma=0.5)
    # returns: (3, 4), (1, 2), (3): less their means 7/3 at state 8 and 3 at state 9; scores less 10/3
    expected = [[7 / 3, 0, 8 / 3, 8 / 3], [-8 / 3, 0, -7 / 3, 0], [1 / 3, 1 / 3, 0, 0]]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    np.testing.assert_array_equal(metrics["shared"], mask)
    half, _ = gigpo(scores, rewards, turns, jnp.array([[8, 9], [8, 9], [8, -1]]), ids, mask, gamma=0.5, step_weight=0.5)
    np.testing.assert_allclose(2 * half - found, dr_grpo(scores, ids, mask), atol=1e-5)


def test_turns_without_a_state_or_company_have_the_advantage_of_their_episode():
    fields = episodes()
    plain = dr_grpo(*read(fields, "scores", "group_ids", "mask"))
    nowhere = fields | {"anchor_ids": jnp.full_like(fields["anchor_ids"], -1)}
    apart = fields | {"anchor_ids": jnp.arange(fields["anchor_ids"].size).reshape(fields["anchor_ids"].shape)}
    for alone in (nowhere, apart):
        found, metrics = gigpo(*read(alone, *READS))
        np.testing.assert_array_equal(found, plain)
        assert not metrics["shared"].any()


def test_states_are_those_of_one_prompt_and_an_episode_may_meet_one_twice():
    fields = episodes()
    found, metrics = gigpo(*read(fields, *READS), gamma=1.0)
    turns, mask, ids = (np.asarray(fields[name]) for name in ("turns", "mask", "group_ids"))
    rewards, anchors = np.asarray(fields["token_rewards"]), np.asarray(fields["anchor_ids"])
    returns = {
        (row, turn): rewards[row, mask[row] & (turns[row] >= turn)].sum()
        for row, turn in np.argwhere(np.asarray(fields["turn_mask"]))
    }
    plain = np.asarray(dr_grpo(*read(fields, "scores", "group_ids", "mask")))
    twice = 0
    for (row, turn), value in returns.items():
        place = (ids[row], anchors[row, turn])
        met = [other for other in returns if (ids[other[0]], anchors[other]) == place]
        twice += sum(other[0] == row for other in met) > 1
        own = mask[row] & (turns[row] == turn)
        expected = plain[row, own] + value - np.mean([returns[other] for other in met])
        np.testing.assert_allclose(np.asarray(found)[row, own], expected, atol=1e-5)
        assert (np.asarray(metrics["shared"])[row, own] == (len(met) > 1)).all()
    assert twice
