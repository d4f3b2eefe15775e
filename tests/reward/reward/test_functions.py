"""Reward `functions`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.core.training.tiny import TINY

import dovetail
from dovetail.config import load
from dovetail.errors import ConfigError, PlanError, RewardError
from dovetail.training.columns import make_scorer
from dovetail.training.loop import train

PATH = str(Path(__file__).with_name("own_functions.py"))
RECORDS = [{"prompt": "6 * 7?", "answer": "42"}, {"prompt": "1?", "answer": "1"}]


def called(name: Any, completions=("42", ""), **params: Any) -> Any:
    reward: Any = dovetail.get("reward", "reward_funcs").bind(path=PATH, name=name, **params)
    prompts = [record["prompt"] for record in RECORDS]
    return reward(list(completions), prompts, RECORDS, [[1] * len(text) for text in completions])


def test_columns_go_by_name():
    assert called("accuracy") == ([1.0, 0.0], {})


def test_everything_is_offered_and_numbers_are_logged():
    scores, metrics = called("everything")
    assert scores == [6, None]
    assert metrics == {"columns": [1.0, 1.0], "ids": [2.0, 0.0]}


def test_numbers_may_be_numpys():
    scores, metrics = called("of_numpy")
    lengths = metrics["length"]
    assert scores == lengths
    assert metrics["short"] == [float(length < 2) for length in lengths]
    assert metrics["mean"] == [sum(lengths) / 2] * 2


def test_messages_awaiting_and_further_arguments():
    assert called("of_messages", conversational=True)[0] == [2, 0]
    assert called("awaited", reward_kwargs={"scale": 3.0})[0] == [6.0, 0.0]
    assert called("optional")[0] == [0.0, 0.0]


def test_several_functions_add_up_and_are_logged_each():
    scores, metrics = called(("accuracy", "everything"), weights=(2.0, 0.5))
    assert scores == [2.0 + 0.5 * 6, 0.0], "one that abstains leaves the other's score"
    assert metrics["accuracy"] == [1.0, 0.0]
    assert metrics["everything"][0] == 6.0
    assert np.isnan(metrics["everything"][1])


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"name": "acuracy"}, "has no function 'acuracy'. Did you mean 'accuracy'?"),
        ({"name": "of_the_trainer"}, "needs 'trainer_state', which only TRL's trainer has"),
        ({"name": "by_position"}, "takes 'completions' by position"),
        ({"name": ("accuracy", "everything"), "weights": (1.0,)}, "weights = (1.0,) for the functions accuracy"),
        ({"name": "awaited", "reward_kwargs": {"scales": 1}}, "has no parameter 'scales', which is in reward_kwargs"),
    ],
)
def test_a_function_that_cannot_be_used(params, message):
    with pytest.raises(ConfigError) as refused:
        dovetail.get("reward", "functions").bind(path=PATH, **params)
    assert message in str(refused.value)
    assert "own_functions.py" in str(refused.value) or "weights" in params


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("return [c / 2 for c in completions]", "mine.py: wrong raised TypeError: unsupported operand"),
        ("return [c / 2 for c in completions]", "mine.py:2]"),
        ("return 1.0", "mine.py: wrong returned 1.0; return a list with a number for each of the 2 completions"),
        ("return [1.0]", "mine.py: wrong returned 1 scores for 2 completions"),
        ("return ['1', '2']", "mine.py: wrong gave '1'; return a number"),
        ("return [c[0]['content'] for c in completions]", "set reward.functions.conversational = True"),
    ],
)
def test_a_function_that_goes_wrong_is_named_with_its_file(source, message, tmp_path):
    (tmp_path / "mine.py").write_text(f"def wrong(completions, **columns):\n    {source}\n")
    reward: Any = dovetail.get("reward", "functions").bind(path=str(tmp_path / "mine.py"), name="wrong")
    with pytest.raises(RewardError) as caught:
        reward(["42", ""], ["a", "b"], RECORDS, [[1], [2]])
    assert message in str(caught.value)


def settings(name: str) -> list[str]:
    return ["train.rewards=['functions']", f"reward.functions.path={PATH!r}", f"reward.functions.name={name}"]


def test_a_column_that_the_task_lacks_is_refused():
    scorer = make_scorer(load(None, settings("accuracy")))
    with pytest.raises(
        PlanError,
        match=r"^\S*own_functions\.py:\d+: accuracy\(\) asks for 'answer', which task words does not have\. Columns:"
        r" difficulty; always there: [^\[]*$",
    ):
        scorer.check_columns(("difficulty",), "words")
    make_scorer(load(None, settings("everything"))).check_columns((), "words")


def test_a_run_is_scored_by_it(tmp_path):
    overrides = [*TINY, *settings("accuracy"), "sft.steps=0", "train.steps=1", "eval.success=None"]
    last = train(load(None, overrides), tmp_path)
    assert np.isfinite(last["reward/functions"])
    assert "eval/reward/functions" in last


def test_a_relative_path_is_that_of_the_folder_where_it_is_used(tmp_path, monkeypatch):
    found = []
    for number in (1, 2):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "mine.py").write_text(f"def score(completions):\n    return [{number}.0 for _ in completions]\n")
        monkeypatch.chdir(folder)
        reward: Any = dovetail.get("reward", "functions").bind(path="mine.py", name="score")
        found.append(reward(["a"], ["?"], [{}], [[1]])[0])
    assert found == [[1.0], [2.0]]
