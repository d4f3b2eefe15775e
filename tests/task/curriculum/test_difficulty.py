"""`difficulty` prefers prompts near the target, starves none, and is a pure function of its state."""

import numpy as np
import pytest

import dovetail
from dovetail.errors import DovetailError
from dovetail_task.curriculum.difficulty import Difficulty

RIGHT, WRONG, NONE = 1.0, 0.0, np.nan


def scored(curriculum, *rates, of=4):
    """Return the state after one step in which prompt i had pass rate `rates[i]`; None means that it was not sampled."""
    state = curriculum.init(len(rates))
    chosen = np.array([index for index, rate in enumerate(rates) if rate is not None])
    scores = np.array(
        [[RIGHT] * round(rate * of) + [WRONG] * (of - round(rate * of)) for rate in rates if rate is not None]
    )
    return curriculum.update(state, chosen, scores)[0]


def drawn(curriculum, state, times, count=1):
    return np.concatenate([curriculum.choose(state, count, np.random.default_rng(seed)) for seed in range(times)])


def test_the_chances_are_those_of_the_formula():
    curriculum = Difficulty(temperature=0.25, exploration=0.0)
    rates = (0.0, 0.25, 0.5, 0.75, 1.0)
    counts = np.bincount(drawn(curriculum, scored(curriculum, *rates), 4000), minlength=5)
    expected = np.exp(-np.abs(np.array(rates) - 0.5) / 0.25)
    np.testing.assert_allclose(counts / 4000, expected / expected.sum(), atol=0.02)


def test_a_prompt_that_has_never_been_scored_counts_as_on_target():
    curriculum = Difficulty(temperature=0.05, exploration=0.0)
    counts = np.bincount(drawn(curriculum, scored(curriculum, 0.0, None, 0.5, 1.0), 1000), minlength=4)
    assert counts[0] == counts[3] == 0
    assert abs(counts[1] - counts[2]) < 100


def test_the_estimate_is_an_exponential_average_that_begins_with_the_first_rate():
    curriculum = Difficulty(decay=0.75)
    state, rates = curriculum.init(2), []
    for scores in ([RIGHT, RIGHT], [WRONG, WRONG], [RIGHT, NONE], [NONE, NONE]):
        state, _ = curriculum.update(state, np.array([1]), np.array([scores]))
        rates.append(float(state["rate"][1]))
    assert rates == [1.0, 0.75, 0.8125, 0.8125]
    assert state["scored"].tolist() == [False, True]
    assert state["last"].tolist() == [0, 4]


def test_success_at_says_what_passes():
    curriculum = Difficulty(success_at=2.5)
    state, _ = curriculum.update(curriculum.init(1), np.array([0]), np.array([[3.0, 2.5, 2.4, -1.0]]))
    assert state["rate"].tolist() == [0.5]


def test_a_prompt_drawn_twice_in_a_step_is_averaged_twice():
    curriculum = Difficulty(decay=0.5)
    state, _ = curriculum.update(curriculum.init(2), np.array([0, 1, 0]), np.array([[RIGHT], [RIGHT], [WRONG]]))
    assert state["rate"].tolist() == [0.5, 1.0]


def test_no_prompt_waits_for_longer_than_exploration_says():
    curriculum, rng = Difficulty(temperature=0.01, exploration=0.25), np.random.default_rng(0)
    state = scored(curriculum, *[0.5] * 8, *[0.0] * 32)
    waits, came = np.zeros(40, int), np.zeros(40, int)
    for _ in range(200):
        chosen = curriculum.choose(state, 8, rng)
        waits += 1
        waits[chosen] = 0
        came[chosen] += 1
        assert len(set(chosen.tolist())) == 8, "without replacement"
        assert waits.max() <= 40 / (0.25 * 8) + 2
        rates = np.where(chosen < 8, 0.5, 0.0)
        state, _ = curriculum.update(state, chosen, np.stack([rates >= 0.5, rates > 1], axis=1).astype(float))
    assert came[:8].min() > 2 * came[8:].max(), "those on target come far more often"


@pytest.mark.parametrize("exploration", [0.0, 0.3, 1.0])
def test_a_fraction_of_a_prompt_is_rounded_at_random(exploration):
    curriculum = Difficulty(temperature=0.01, exploration=exploration)
    state = scored(curriculum, 0.5, 0.5, 0.0)
    state["last"] = np.array([5, 5, 1], np.int32)
    share = np.mean(drawn(curriculum, state, 2000) == 2)
    assert share == pytest.approx(exploration, abs=0.04)


def test_more_prompts_than_there_are_come_in_whole_rounds_first():
    curriculum = Difficulty()
    chosen = curriculum.choose(curriculum.init(3), 8, np.random.default_rng(0))
    assert sorted(np.bincount(chosen, minlength=3).tolist()) == [2, 3, 3]
    assert sorted(chosen[:3]) == sorted(chosen[3:6]) == [0, 1, 2]


def test_the_same_state_and_generator_choose_the_same_and_neither_method_changes_the_state():
    curriculum = Difficulty()
    state = scored(curriculum, 0.0, 0.5, 1.0, None)
    before = {name: array.copy() for name, array in state.items()}
    first, again = (curriculum.choose(state, 2, np.random.default_rng(7)) for _ in range(2))
    curriculum.update(state, first, np.ones((2, 3)))
    np.testing.assert_array_equal(first, again)
    for name, array in state.items():
        np.testing.assert_array_equal(array, before[name])


def test_the_state_keeps_its_shapes_and_types():
    curriculum = Difficulty()
    first = curriculum.init(5)
    after, _ = curriculum.update(first, np.array([0, 3]), np.ones((2, 2)))
    assert {n: (a.shape, a.dtype) for n, a in first.items()} == {n: (a.shape, a.dtype) for n, a in after.items()}


def test_what_it_reports():
    curriculum = Difficulty()
    state, metrics = curriculum.update(curriculum.init(4), np.array([0, 1]), np.array([[RIGHT], [WRONG]]))
    assert metrics == {"seen": 0.5}
    _, metrics = curriculum.update(state, np.array([0, 2, 0]), np.array([[RIGHT]] * 3))
    assert metrics == {"estimate": 1.0, "seen": 0.75}


@pytest.mark.parametrize(
    ("name", "value"), [("target", 1.5), ("temperature", 0.0), ("decay", 1.0), ("exploration", -0.1)]
)
def test_a_setting_out_of_range_is_refused(name, value):
    with pytest.raises(DovetailError, match=name):
        dovetail.get("curriculum", "difficulty").bind(**{name: value})
