"""`recent` hands out the newest groups with mixed scores, for as long as it says, and what is not there is empty."""

import numpy as np
import pytest

import dovetail
from dovetail.errors import ConfigError, DovetailError
from dovetail_rollout.replay.recent import Recent

ROWS, TOKENS = 2, 3


def group(label, scores=(1.0, 0.0), mask=True):
    return {
        "tokens": np.full((ROWS, TOKENS), label, np.int32),
        "mask": np.full((ROWS, TOKENS), mask),
        "scores": np.array(scores, np.float32),
    }


def together(*groups):
    return {name: np.stack([each[name] for each in groups]) for name in groups[0]}


def labels(earlier):
    """The labels of the groups that have joined; 0 for one that is not there."""
    return earlier["tokens"][:, 0, 0].tolist()


def steps(recent, *batches):
    """Go through steps; return what has joined each, and the last metrics."""
    state, rng = recent.init(group(0, mask=False)), np.random.default_rng(0)
    found, metrics = [], {}
    for batch in batches:
        earlier, state, metrics = recent.step(state, batch, rng)
        found.append(labels(earlier))
        assert (earlier["mask"].all(axis=(1, 2)) == (np.array(labels(earlier)) > 0)).all()
    return found, metrics


EVEN = together(group(99, scores=(1.0, 1.0)))
"""A step that has nothing to teach."""


def test_the_newest_come_first_and_age():
    found, metrics = steps(Recent(groups=2, max_age=2), together(group(1), group(2)), together(group(3)), EVEN, EVEN)
    # step 3: the group of step 2, then the first of step 1; step 4: that of step 1 is too old
    assert found == [[0, 0], [1, 2], [3, 1], [3, 0]]
    assert metrics == {"groups": 1.0, "age": 2.0}


def test_only_groups_whose_scores_differ_enough_are_kept():
    batch = together(group(1, (1.0, 1.0)), group(2, (1.0, 0.5)), group(3, (1.0, 0.0)))
    found, _ = steps(Recent(groups=3, spread=0.5), batch, EVEN)
    assert found[1] == [3, 0, 0]


def test_process_rewards_are_part_of_a_score():
    credit = np.array([[0.0, 0.5, 0.5], [0.0, 0.0, 0.0]], np.float32)
    differs = group(1, (0.0, 0.0)) | {"process_rewards": credit}
    alike = group(2, (0.0, 1.0)) | {"process_rewards": credit}
    recent, rng = Recent(groups=2), np.random.default_rng(0)
    fresh = together(differs, alike)
    _, state, _ = recent.step(recent.init({name: array[0] * 0 for name, array in fresh.items()}), fresh, rng)
    assert labels(recent.step(state, fresh, rng)[0]) == [1, 0]


def test_completions_with_an_empty_mask_have_no_score():
    rejected = group(1) | {"mask": np.array([[True] * TOKENS, [False] * TOKENS])}
    found, metrics = steps(Recent(groups=1), together(rejected, group(2, mask=False)), EVEN)
    assert found[1] == [0]
    assert metrics == {"groups": 0.0}


def test_the_buffer_lets_the_oldest_go():
    found, _ = steps(
        Recent(groups=3, capacity=3, max_age=9), together(group(1), group(2)), together(group(3), group(4)), EVEN
    )
    assert found[2] == [3, 4, 1]


def test_more_groups_at_once_than_fit():
    found, _ = steps(Recent(groups=2, capacity=2), together(group(1), group(2), group(3)), EVEN)
    assert found[1] == [1, 2]


def test_a_group_that_is_too_old_leaves_nothing_behind():
    recent, rng = Recent(groups=1, capacity=1, max_age=1), np.random.default_rng(0)
    _, state, _ = recent.step(recent.init(group(0, mask=False)), together(group(5)), rng)
    _, state, _ = recent.step(state, EVEN, rng)
    earlier, _, _ = recent.step(state, EVEN, rng)
    assert not any(array.any() for array in earlier.values())


def test_every_field_travels_and_the_state_keeps_its_shapes_and_types():
    recent, rng = Recent(groups=1, capacity=4), np.random.default_rng(0)
    extra = {"demo_mask": np.ones((ROWS, TOKENS), bool), "difficulty": np.arange(ROWS, dtype=np.float32)}
    first = recent.init(group(0, mask=False) | extra)
    assert not first["demo_mask"].any(), "what is not there demonstrates nothing"
    fresh = together(group(1) | extra)
    _, state, _ = recent.step(first, fresh, rng)
    earlier, _, _ = recent.step(state, fresh, rng)
    for name in fresh:
        np.testing.assert_array_equal(earlier[name], fresh[name])
        assert earlier[name].dtype == fresh[name].dtype
    assert {n: (a.shape, a.dtype) for n, a in first.items()} == {n: (a.shape, a.dtype) for n, a in state.items()}


def test_a_step_changes_neither_the_state_nor_the_batch():
    recent = Recent(groups=1)
    state, fresh = recent.init(group(0)), together(group(1))
    for _ in range(2):
        given = (state, fresh)
        before = [{name: array.copy() for name, array in each.items()} for each in given]
        _, state, _ = recent.step(state, fresh, np.random.default_rng(0))
        for each, copies in zip(given, before, strict=True):
            for name, array in each.items():
                np.testing.assert_array_equal(array, copies[name])


def test_more_groups_than_slots_are_refused():
    with pytest.raises(ConfigError, match=r"replay.recent.groups = 9 is more than replay.recent.capacity = 8"):
        dovetail.get("replay", "recent").bind(groups=9, capacity=8)


@pytest.mark.parametrize(("name", "value"), [("groups", 0), ("capacity", 0), ("max_age", 0), ("spread", -1.0)])
def test_a_setting_out_of_range_is_refused(name, value):
    with pytest.raises(DovetailError, match=name):
        dovetail.get("replay", "recent").bind(**{name: value})
