"""Reward `compute_score`."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any

import pytest
from tests.limits import limit_only

import dovetail
from dovetail.config import load
from dovetail.errors import ConfigError, PlanError, RewardError
from dovetail.training.columns import make_scorer
from dovetail_kit.workers import CallError
from dovetail_reward.reward._own import load_function
from dovetail_reward.reward.compute_score import ComputeScore

PATH = str(Path(__file__).with_name("own_scores.py"))


def score(completions: list[str], truths: list[Any] | None = None, infos: list[Any] | None = None, **params: Any):
    reward = dovetail.get("reward", "compute_score").bind(path=PATH, **params)
    n = len(completions)
    return reward(completions, records(n, truths, infos))[0]


def records(n: int, truths: list[Any] | None = None, infos: list[Any] | None = None) -> list[dict[str, Any]]:
    columns = zip(truths or ["42"] * n, infos or [{}] * n, strict=True)
    return [{"data_source": "s", "ground_truth": truth, "extra_info": info} for truth, info in columns]


def scored(completions: list[str], **params: Any):
    return ComputeScore(path=PATH, **params)(completions, records(len(completions)))


def test_interface():
    component = dovetail.get("reward", "custom_reward_function")
    assert component.reads == ("completions", "examples")
    assert component.params["name"] == "compute_score"


@pytest.mark.parametrize("time_limit", [None, 60.0])
def test_every_form_of_result(time_limit):
    forms = {"dict": 0.5, "bool": 1.0, "list": 0.25, "int": 2.0, "none": None}
    scores = score(list(forms), name="all_forms", time_limit=time_limit, concurrency=1)
    assert scores == list(forms.values())
    assert all(value is None or type(value) is float for value in scores)


def test_arguments_go_by_name():
    assert score(["It is 42", "43"], ["42", 43]) == [1.0, 1.0]
    assert score(["", ""], infos=[{"value": 1}, {"value": 2}], name="scaled", reward_kwargs={"scale": 3}) == [3.0, 6.0]
    assert score([]) == []


def test_columns_of_other_names_or_none():
    columns = {"data_source_column": None, "ground_truth_column": "answer", "extra_info_column": None}
    reward: Any = dovetail.get("reward", "compute_score").bind(path=PATH, **columns)
    assert reward(["42", "43"], [{"answer": "42"}] * 2)[0] == [1.0, 0.0]


def test_an_entry_of_a_column_as_in_data_made_for_verl():
    columns = {"ground_truth_column": "reward_model.ground_truth", "extra_info_column": None}
    record = {"data_source": "s", "reward_model": {"style": "rule", "ground_truth": "42"}}
    reward: Any = dovetail.get("reward", "compute_score").bind(path=PATH, **columns)
    assert reward(["It is 42"], [record])[0] == [1.0]
    with pytest.raises(RewardError, match="the column 'reward_model' has no entry 'ground_truth'. It has: style"):
        reward(["It is 42"], [record | {"reward_model": {"style": "rule"}}])
    settings = [f"reward.compute_score.{name}={value!r}" for name, value in columns.items()]
    config = load(None, ["train.rewards=['compute_score']", f"reward.compute_score.path={PATH!r}", *settings])
    make_scorer(config).check_columns(("data_source", "reward_model"), "records")
    with pytest.raises(PlanError, match="reads the column 'reward_model.ground_truth'"):
        make_scorer(config).check_columns(("data_source",), "records")


def test_the_columns_that_a_task_lacks_are_all_named_with_their_settings():
    config = load(None, ["train.rewards=['compute_score']", f"reward.compute_score.path={PATH!r}"])
    message = (
        r"reward compute_score of dovetail .* reads the columns data_source, ground_truth, extra_info, which task"
        " arithmetic does not have"
    )
    with pytest.raises(PlanError, match=message) as refused:
        make_scorer(config).check_columns(("answer",), "arithmetic")
    assert "; set reward.compute_score.data_source_column, reward.compute_score.ground_truth_column" in str(
        refused.value
    )


@pytest.mark.parametrize("late_score", [None, -1.0])
def test_a_time_limit_stops_what_sleeps_or_is_busy_or_ends(late_score, monkeypatch):
    limit_only(monkeypatch, "sleeps", "is busy")
    texts = ["fine", "sleeps", "is busy", "ends", "fine"]
    scores = score(texts, name="misbehaving", time_limit=1.0, concurrency=3, late_score=late_score)
    assert scores == [1.0, late_score, late_score, late_score, 1.0]


@pytest.mark.parametrize(("params", "error"), [({}, KeyError), ({"time_limit": 60.0, "concurrency": 1}, CallError)])
def test_an_error_is_not_hidden(params, error):
    with pytest.raises(error, match="s"):
        score(["raises"], name="misbehaving", **params)
    assert score(["fine"], name="misbehaving", **params) == [1.0]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"name": "compute_scores"}, "has no function 'compute_scores'. Did you mean 'compute_score'? Functions: "),
        ({"name": "NOT_A_FUNCTION"}, "has no function 'NOT_A_FUNCTION'"),
        ({"name": "batch"}, "missing a required argument: 'data_sources'"),
        ({"batched": True}, "missing a required argument: 'data_source'"),
        ({"name": "batch", "batched": True, "time_limit": 1.0}, "that takes a plain function, no time_limit"),
        ({"calls_per_second": 1.0}, "compute_score is not an async function, and calls_per_second is for those only"),
        ({"name": "three"}, "got an unexpected keyword argument 'extra_info'"),
        ({"name": "scaled", "reward_kwargs": {"scales": 2}}, "got an unexpected keyword argument 'scales'"),
    ],
)
def test_a_function_that_cannot_be_used(params, message):
    with pytest.raises(ConfigError) as caught:
        ComputeScore(path=PATH, **params)
    assert message in str(caught.value)
    assert "own_scores.py" in str(caught.value)


def test_a_file_that_cannot_be_used(tmp_path):
    reward = dovetail.get("reward", "compute_score")
    with pytest.raises(ConfigError, match="there is no Python file .*none.py"):
        reward.bind(path=str(tmp_path / "none.py"))
    broken = tmp_path / "broken.py"
    broken.write_text("import nothing_of_this_name")
    with pytest.raises(ConfigError, match="cannot be run: ModuleNotFoundError: No module named 'nothing_of_this_name'"):
        reward.bind(path=str(broken))


@pytest.mark.parametrize("time_limit", [None, 60.0])
def test_other_numbers_of_a_dict_are_metrics(time_limit):
    scores, metrics = scored(["dict", "bool"], name="all_forms", time_limit=time_limit, concurrency=1)
    assert scores == [0.5, 1.0]
    assert metrics["acc"][0] == 1.0
    assert math.isnan(metrics["acc"][1])
    assert metrics.keys() == ({"acc"} if time_limit is None else {"acc", "late"})


def test_numbers_may_be_numpys():
    metrics = {"right": [1.0], "share": [0.25], "words": [3.0]}
    assert scored(["a"], name="of_numpy") == ([0.5], metrics)


def test_batched():
    assert scored(["a", "ab"], name="batch", batched=True, reward_kwargs={"bonus": 0.5}) == ([1.5, 2.5], {})
    assert scored([], name="batch", batched=True) == ([], {})


def test_async_functions_are_awaited_several_at_a_time():
    most = load_function(PATH, "judged").__globals__["most"]
    most.clear()
    scores, metrics = scored(["a b"] * 7, name="judged", concurrency=3)
    assert scores == [1.0] * 7
    assert metrics == {"words": [2.0] * 7}
    assert max(most) == 3


def test_async_functions_have_a_time_limit_and_a_rate():
    scores, metrics = scored(["at once", "sleeps"], name="judged", time_limit=0.3, calls_per_second=1000.0)
    assert scores == [1.0, None]
    assert metrics["late"] == [0.0, 1.0]
    assert scored(["sleeps"], name="judged", time_limit=0.1, late_score=-1.0)[0] == [-1.0]


def test_async_functions_raise_and_run_beside_an_event_loop():
    with pytest.raises(KeyError):
        scored(["a", "raises"], name="judged")

    async def notebook():
        return scored(["a"], name="judged")[0]

    assert asyncio.run(notebook()) == [1.0]
