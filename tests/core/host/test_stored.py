"""Sampled groups come back from a checkpoint as they were."""

import attrs
import jax
import numpy as np
import pytest
from tests.core.host.test_refill import a_round

from dovetail.errors import DataError
from dovetail.host.stored import Stored
from dovetail.protocols import Episodes


def episodes(rows):
    return Episodes(
        turn_rewards=np.full((rows, 2), 0.5),
        turn_mask=np.ones((rows, 2), bool),
        anchor_ids=np.arange(2 * rows).reshape(rows, 2),
        void_turns=np.zeros((rows, 2), bool),
        tool_calls=np.arange(rows),
        tool_errors=np.zeros(rows, int),
        ends=np.array(["done", "max_turns", *["done"] * (rows - 2)]),
        failed=np.zeros(rows, bool),
        conversations=(({"role": "assistant", "content": "\ud800"},),) * rows,
        states=(object(),) * rows,
        metrics={"won": np.array([np.nan] * rows)},
    )


@pytest.mark.parametrize("of_episodes", [False, True])
def test_groups_are_stored_bit_for_bit(of_episodes):
    sampled = a_round(1)
    sampled.scores.total[0] = np.nan
    sampled = attrs.evolve(sampled, scores=attrs.evolve(sampled.scores, metrics={"grade/tries": np.arange(6.0)}))
    if of_episodes:
        sampled = attrs.evolve(sampled, completed=attrs.evolve(sampled.completed, episodes=episodes(6)))
    found = Stored.of(sampled).restore()
    assert (found.texts, found.examples, found.scores.names) == (sampled.texts, sampled.examples, ("label",))
    assert found.scores.metrics.keys() == {"grade/tries"}
    if of_episodes:
        before, after = (each.completed.episodes for each in (sampled, found))
        assert after.states == (None,) * 6
        assert [list(turns) for turns in after.conversations] == [list(turns) for turns in before.conversations]
    arrays = [
        [leaf for leaf in jax.tree.leaves(attrs.asdict(each)) if isinstance(leaf, np.ndarray)]
        for each in (sampled, found)
    ]
    assert len(arrays[0]) == len(arrays[1]) > 10
    for one, other in zip(*arrays, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


def test_a_column_that_a_checkpoint_cannot_hold_is_refused():
    sampled = a_round(0)
    odd = tuple({**example, "when": {1, 2}} for example in sampled.completed.asked)
    with pytest.raises(
        DataError, match=r"a column of their prompts has the value \{1, 2\}.* leave train.oversample out"
    ):
        Stored.of(attrs.evolve(sampled, completed=attrs.evolve(sampled.completed, asked=odd)))
