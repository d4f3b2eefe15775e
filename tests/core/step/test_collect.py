"""Rewards on tokens: no reward of an episode is lost if corrections reject tokens."""

from __future__ import annotations

import attrs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.core.step.test_update import make, sampled

import dovetail
from dovetail.protocols import Weights
from dovetail.step.collect import Collector, on_ends_of_turns
from dovetail.step.moment import Moment

TURNS = jnp.array([[0, 0, 0, 1, 1, 2]])
REWARDS = jnp.array([[1.0, 2.0, 4.0]])


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        ([1, 1, 0, 1, 0, 1], [0, 1, 0, 2, 0, 4]),  # position 2 is an observation, as is 4
        ([1, 1, 0, 0, 0, 1], [0, 3, 0, 0, 0, 4]),  # all of turn 1 is rejected: its reward goes to turn 0
        ([1, 0, 0, 1, 0, 0], [1, 0, 0, 6, 0, 0]),  # the last turn is
        ([0, 0, 0, 1, 0, 1], [0, 0, 0, 3, 0, 4]),  # the first turn is: there is nothing before it
        ([0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0]),
    ],
)
def test_a_turn_that_is_rejected_gives_its_reward_to_the_one_before(mask: list[int], expected: list[int]) -> None:
    assert on_ends_of_turns(REWARDS, TURNS, jnp.array([mask]) == 1).tolist() == [expected]


@attrs.frozen(kw_only=True)
class Rejects:
    """Rejects the policy tokens at one position."""

    position: int = 0

    def __call__(self, rollout_logps, mask):
        kept = mask & (jnp.arange(mask.shape[1]) != self.position)[None, :]
        return kept.astype(jnp.float32), kept


def test_what_rejected_tokens_have_earned_stays_with_the_episode() -> None:
    dovetail.register("correction", "rejects", Rejects)
    algorithm, graphdef, weights = make("train.correction=['rejects']", "train.process_rewards=['equations']")
    rng = np.random.default_rng(3)
    batch = sampled()
    mask = np.asarray(batch["mask"])
    by_turn = rng.normal(size=(12, 2)).astype(np.float32)
    earned = np.where(mask, rng.normal(size=mask.shape), 0).astype(np.float32)
    batch |= {
        "turns": jnp.asarray(np.broadcast_to(np.arange(5) // 2, (12, 5)).clip(max=1)),
        "turn_rewards": jnp.asarray(by_turn),
        "turn_mask": jnp.ones((12, 2), bool),
        "process_rewards": jnp.asarray(earned),
    }
    collector = Collector(algorithm=algorithm, graphdefs={"policy": graphdef})
    moment = Moment(step=jnp.int32(0), total=jnp.int32(1), key=jax.random.key(0), coefficients={}, update=jnp.int32(0))
    found, _, _ = collector({"policy": Weights(*weights)}, batch, moment, algorithm.hyper)
    left = np.asarray(found["mask"]).any(axis=1)
    assert left.any()
    assert (np.asarray(found["mask"]) != mask).any()
    in_all = np.asarray(batch["scores"]) + earned.sum(axis=1)
    np.testing.assert_allclose(np.asarray(found["token_rewards"]).sum(axis=1)[left], in_all[left], rtol=1e-5)
