"""Rewards get completions and columns by name; whatever they do wrong is said with name and sample."""

import math

import attrs
import numpy as np
import pytest

from dovetail.errors import PlanError, RewardError
from dovetail.registry import Component, Origin
from dovetail.train.parts import Part
from dovetail.train.rewards import Scorer

ORIGIN = Origin("acme-rl", "1.0", "acme")
EXAMPLES = [{"prompt": "1+1", "answer": "2"}, {"prompt": "1+2", "answer": "3"}]


def equal(completions, answer, *, bonus: float = 1.0):
    return [bonus if c == a else 0.0 for c, a in zip(completions, answer, strict=True)]


def echo(prompts, completions):
    return [float(p in c) for p, c in zip(prompts, completions, strict=True)]


def abstain(completions):
    return [None, 2]


def short(completions):
    return [1.0]


def nan(completions):
    return [0.0, math.nan]


def words(completions):
    return ["good", 1.0]


def failing(completions):
    raise KeyError("ground_truth")


def reads_target(completions, target):
    return [0.0 for _ in completions]


@attrs.frozen(kw_only=True)
class Sum:
    def __call__(self, score_table, reward_names):
        return np.nansum(score_table, axis=1)


def part(function, **floats):
    component = Component(kind="reward", name=function.__name__, target=function, origin=ORIGIN)
    return Part(role="reward", component=component, statics={}, floats=floats)


def scorer(*functions):
    return Scorer(rewards=tuple(part(f) for f in functions), manager=part(Sum))


def test_columns_and_completions_arrive_by_name():
    scores = scorer(equal, echo)(EXAMPLES, ["2", "1+2=4"])
    assert scores.names == ("equal", "echo")
    assert scores.table.tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert scores.total.tolist() == [1.0, 1.0]


def test_hyperparameters_reach_the_reward():
    made = attrs.evolve(scorer(), rewards=(part(equal, bonus=0.5),))
    assert made(EXAMPLES, ["2", "x"]).total.tolist() == [0.5, 0.0]


def test_none_abstains():
    scores = scorer(abstain)(EXAMPLES, ["a", "b"])
    assert np.isnan(scores.table[0, 0])
    assert scores.total.tolist() == [0.0, 2.0]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (short, "reward short returned 1 scores for 2 completions"),
        (nan, "reward nan gave nan to sample 1, prompt '1.2', completion 'b'; return a finite number, or None"),
        (words, "reward words gave 'good' to sample 0"),
        (failing, r"reward failing \(acme-rl 1.0 \(acme\)\) raised KeyError: 'ground_truth'; first completion: 'a'"),
    ],
)
def test_a_faulty_reward_is_named_with_its_sample(function, message):
    with pytest.raises(RewardError, match=message):
        scorer(function)(EXAMPLES, ["a", "b"])


def test_a_column_that_the_task_lacks_is_refused_before_the_run():
    with pytest.raises(PlanError) as caught:
        scorer(equal, reads_target).check_columns(("answer", "targets"), "gsm8k")
    assert str(caught.value) == (
        "reward reads_target reads the column 'target', which task gsm8k does not have. Did you mean 'targets'?"
        " Columns: answer, targets; always there: completions, prompts"
    )
