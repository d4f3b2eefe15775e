"""What holds for every registered reward that reads completions and an answer; a new one joins by being registered."""

from __future__ import annotations

import importlib.util
import math
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.reward.texts import HOSTILE, formatted

import dovetail

NAMES = dovetail.names("reward")
TRUTHS = ("42", 42, 0, -1.5, "", "Paris", "inf", "nan", "1e999999999999999999999", None)
RIGHT = {
    "compute_score": "42",
    "gsm8k": "#### 42",
    "math": r"\boxed{42}",
    "math_dapo": "Answer: 42",
    "math_verify": r"\boxed{42}",
}
"""A right answer in its place; `formatted("42")` for those not named."""
PARAMS: dict[str, dict[str, Any]] = {"compute_score": {"path": str(Path(__file__).with_name("own_scores.py"))}}
LIBRARY = importlib.util.find_spec("math_verify") is not None

every = pytest.mark.parametrize("name", NAMES)
every_form = pytest.mark.parametrize(
    ("name", "params"),
    [
        pytest.param(name, params, id="-".join([name, *params]))
        for name in NAMES
        for params in ({}, {"verl_compatible": True})
        if (params.keys() <= dovetail.get("reward", name).params.keys()) and (LIBRARY or name != "math_verify")
    ],
)


def score(name: str, completions: list[str], answers: list[Any], **params: Any) -> list[float | None]:
    component = dovetail.get("reward", name)
    empty = [""] * len(completions)
    columns = {"completions": completions, "answer": answers, "ground_truth": answers, "prompts": empty}
    columns |= {"data_source": empty, "extra_info": empty}
    return component.bind(**PARAMS.get(name, {}), **params)(*(columns[read] for read in component.reads))


@every_form
def test_hostile_texts_get_a_finite_score(name: str, params: dict[str, Any]) -> None:
    labels, truths = list(HOSTILE), TRUTHS
    if name == "math_verify":  # starts a process after every text that takes too long
        params, labels, truths = params | {"time_limit": 0.1}, labels[::4], TRUTHS[:1]
    for truth in truths:
        check_hostile(name, labels, truth, params)


def check_hostile(name: str, labels: list[str], truth: Any, params: dict[str, Any]) -> None:
    scores = score(name, [HOSTILE[label] for label in labels], [truth] * len(labels), **params)
    assert len(scores) == len(labels)
    for label, value in zip(labels, scores, strict=True):
        assert value is None or math.isfinite(value), (label, truth)


@every_form
def test_a_completion_is_scored_by_itself(name: str, params: dict[str, Any]) -> None:
    completions = [*map(formatted, ("42", " 42", "$42.", "40", "x")), "<answer>42</answer>", "42", ""]
    completions += RIGHT.values()
    together = score(name, completions, ["42"] * len(completions), **params)
    assert together == [score(name, [text], ["42"], **params)[0] for text in completions]
    assert score(name, [], [], **params) == []


@every_form
def test_right_answers_earn_more_than_empty_texts(name: str, params: dict[str, Any]) -> None:
    right, nothing = score(name, [RIGHT.get(name, formatted("42")), ""], ["42", "42"], **params)
    assert right is not None
    assert nothing is not None
    assert right > nothing


@pytest.mark.parametrize("name", [name for name in NAMES if "answer_start" in dovetail.get("reward", name).params])
def test_tags_are_taken_literally(name: str) -> None:
    params = dovetail.get("reward", name).params
    tags = {tag: f"(.*{tag}+?" for tag in params if tag.endswith(("_start", "_end"))}
    text = formatted("42")
    for tag, spelling in tags.items():
        text = text.replace(params[tag], spelling)
    assert score(name, [text], ["42"], **tags) == score(name, [formatted("42")], ["42"])
    assert score(name, [formatted("42")], ["42"], **tags) == score(name, [""], ["42"])


@every
def test_a_bound_reward_pickles(name: str) -> None:
    bound = pickle.loads(pickle.dumps(dovetail.get("reward", name).bind(**PARAMS.get(name, {}))))
    assert callable(bound)


def test_rewards_do_not_import_jax() -> None:
    program = "import sys, dovetail\n"
    program += f"for name in {NAMES}: dovetail.get('reward', name).load()\n"
    program += "assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
