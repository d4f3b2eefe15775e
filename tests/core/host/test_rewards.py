"""Rewards receive completions and columns by name; errors name the reward and the sample."""

import math
import re

import attrs
import numpy as np
import pytest

from dovetail.config import load
from dovetail.errors import ConfigError, PlanError, PluginError, RewardError
from dovetail.host.records import joined, selected
from dovetail.host.rewards import Scorer, means_of, metric
from dovetail.registry import Component, Origin
from dovetail.step.parts import Part

ORIGIN = Origin("acme-rl", "1.0", "acme")
EXAMPLES = [{"prompt": "1+1", "answer": "2"}, {"prompt": "1+2", "answer": "3"}]


def equal(completions, answer, *, bonus: float = 1.0):
    return [bonus if c == a else 0.0 for c, a in zip(completions, answer, strict=True)]


def echo(prompts, completions):
    return [float(p in c) for p, c in zip(prompts, completions, strict=True)]


def abstain(completions):
    return [None, 2]


def same(completions):
    return [1.0 for _ in completions]


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


def one_number(score_table, reward_names):
    return score_table.mean()


def texts(score_table, reward_names):
    return [str(score) for score in score_table[:, 0]]


def infinite(score_table, reward_names):
    return score_table[:, 0] * np.inf


def by_name(score_table, reward_names):
    return dict.fromkeys(reward_names, 1)


def nothing(score_table, reward_names):
    score_table.sum(axis=1)


def raising(score_table, reward_names):
    return score_table["style"]


def reports(completions):
    return [1.0, None], {"tries": [2, math.nan], "seconds": 3}


def reports_wrongly(completions):
    return [1.0, 2.0], {"tries": [1, 2, 3]}


def judge(examples, completions, *, columns: tuple[str, ...] = (), question_column: str | None = None):
    return [sum(len(example[name]) for name in columns) for example in examples]


built = []


@attrs.frozen(kw_only=True)
class Needy:
    file: str = "here"

    def __attrs_post_init__(self):
        built.append(self.file)
        if self.file != "here":
            raise ConfigError(f"reward.needy.file: there is no {self.file}")

    def __call__(self, completions):
        return [0.0 for _ in completions]


def part(function, statics=None, **floats):
    component = Component(kind="reward", name=function.__name__, target=function, origin=ORIGIN)
    return Part(role="reward", label="reward", component=component, statics=statics or {}, floats=floats)


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


def test_without_rewards_every_score_is_zero():
    """A run may learn only from process rewards or loss terms."""
    made = scorer()
    made.check()
    scores = made(EXAMPLES, ["2", "x"])
    assert scores.total.tolist() == [0.0, 0.0]
    assert scores.table.shape == (2, 0)
    assert scores.means() == {}
    with pytest.raises(PlanError, match="reads 'score_table', which rewards provide; set train.rewards to names"):
        load(None, ["train.rewards=()", "train.advantage=gdpo"])


def test_none_abstains():
    scores = scorer(abstain)(EXAMPLES, ["a", "b"])
    assert np.isnan(scores.table[0, 0])
    assert scores.total.tolist() == [0.0, 2.0]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (short, r"reward short returned 1 scores for 2 completions \[.*test_rewards\.py:\d+\]$"),
        (nan, "reward nan gave nan to sample 1, prompt '1.2', completion 'b'; return a finite number of at most"),
        (words, r"reward words gave 'good' to sample 0.*, or None to abstain \[.*test_rewards\.py:\d+\]$"),
        (
            failing,
            r"reward failing \(acme-rl 1.0 \(acme\)\) raised KeyError: 'ground_truth'; first completion: 'a' \[.*test_rewards",
        ),
    ],
)
def test_a_faulty_reward_is_named_with_its_sample(function, message):
    with pytest.raises(RewardError, match=message):
        scorer(function)(EXAMPLES, ["a", "b"])


@pytest.mark.parametrize(
    ("manager", "said"),
    [
        (one_number, r"returned '1\.0', float64 \(\), for 2 completions; return one finite number for each, or NaN .*"),
        (texts, r"returned .*, <U3 \(2,\), for 2 completions; .*"),
        (infinite, r"returned '\[inf inf\]', float64 \(2,\), for 2 completions; .*"),
        (nothing, r"returned None; a function without `return` does"),
        (by_name, r"returned .\{.same.: 1\}. for 2 completions; return one finite number for each, or NaN .*"),
        (raising, r"raised IndexError: .*"),
    ],
)
def test_a_manager_gives_one_number_for_each_completion(manager, said):
    """One number for all would be broadcast, and the run would learn nothing."""
    component = Component(kind="reward_manager", name="mine", target=manager, origin=ORIGIN)
    made = Scorer(rewards=(part(same),), manager=Part(role="m", label="m", component=component, statics={}, floats={}))
    with pytest.raises(PluginError) as caught:
        made(EXAMPLES, ["a", "b"])
    assert re.fullmatch(
        rf"reward_manager\.mine of acme-rl 1\.0 \(acme\) {said} \[.*test_rewards\.py:\d+\]", str(caught.value)
    )
    if manager is not infinite:
        with pytest.raises(PluginError, match=r"^reward_manager\.mine of "):
            made.check()


def test_a_column_that_the_task_lacks_is_refused_before_the_run():
    with pytest.raises(PlanError) as caught:
        scorer(equal, reads_target).check_columns(("answer", "targets"), "gsm8k")
    assert re.fullmatch(
        r"reward reads_target of acme-rl 1\.0 \(acme\) reads the column 'target', which task gsm8k does not have\. Did"
        r" you mean 'targets'\? Columns: answer, targets; always there: completions, prompts, examples, group_ids,"
        r" tokens, logps \[.*test_rewards\.py:\d+\]",
        str(caught.value),
    )


def test_what_rewards_report_beside_their_scores():
    scores = scorer(reports, equal)(EXAMPLES, ["2", "x"])
    assert scores.means() == {
        "reward/reports": 1.0,
        "reward/reports/abstained": 0.5,
        "reward/reports/tries": 2.0,
        "reward/reports/seconds": 3.0,
        "reward/equal": 0.5,
    }
    with pytest.raises(
        RewardError, match=r"metric reports_wrongly/tries of a reward is '\[1, 2, 3\]'; return one number"
    ):
        scorer(reports_wrongly)(EXAMPLES, ["2", "x"])


def test_scores_of_rounds_are_joined_and_chosen_from():
    first, second = scorer(reports)(EXAMPLES, ["2", "x"]), scorer(equal)(EXAMPLES, ["2", "x"])
    both = joined([first, attrs.evolve(second, names=first.names)], [len(first.total), len(second.total)])
    chosen = selected(both, np.array([3, 0]), 1)
    assert chosen.table.tolist() == [[0.0], [1.0]]
    assert chosen.total.tolist() == [0.0, 1.0]
    assert np.isnan(chosen.metrics["reports/tries"][0])
    assert chosen.metrics["reports/tries"][1] == 2.0


def test_a_reward_may_read_whole_records_and_say_which_columns_it_needs():
    made = Scorer(rewards=(part(judge, {"columns": ("answer",)}),), manager=part(Sum))
    made.check_columns(("answer",), "own")
    assert made(EXAMPLES, ["2", "x"]).total.tolist() == [1.0, 1.0]
    with pytest.raises(PlanError, match="reward judge .* reads the column 'answer', which task own does not have"):
        made.check_columns(("answers",), "own")
    made = Scorer(rewards=(part(judge, {"question_column": "question"}),), manager=part(Sum))
    with pytest.raises(PlanError, match="reward judge .* reads the column 'question', which task own does not have"):
        made.check_columns(("answers",), "own")


def test_rewards_are_built_once_and_early():
    built.clear()
    made = scorer(Needy)
    made.check()
    assert built == ["here"]
    made(EXAMPLES, ["a", "b"])
    made(EXAMPLES, ["a", "b"])
    assert built == ["here"]
    with pytest.raises(ConfigError, match="there is no elsewhere"):
        Scorer(rewards=(part(Needy, {"file": "elsewhere"}),), manager=part(Sum)).check()


def test_a_metric_is_none_or_nan_where_there_is_none():
    found = metric([None, 1.0, math.nan, 2.0], "parts", 4)
    assert means_of("reward", {"parts": found}) == {"reward/parts": 1.5}
