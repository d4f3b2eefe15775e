"""What holds for every registered reward that reads completions and an answer; a new one joins by being registered."""

from __future__ import annotations

import math
import pickle
import subprocess
import sys
from typing import Any

import pytest
from tests.reward.texts import HOSTILE, formatted

import dovetail

NAMES = dovetail.names("reward")
TRUTHS = ("42", 42, 0, -1.5, "", "Paris", "inf", "nan", "1e999999999999999999999", None)

every = pytest.mark.parametrize("name", NAMES)


def score(name: str, completions: list[str], answers: list[Any], **params: Any) -> list[float | None]:
    component = dovetail.get("reward", name)
    columns = {"completions": completions, "answer": answers, "prompts": [""] * len(completions)}
    return component.bind(**params)(*(columns[read] for read in component.reads))


@every
@pytest.mark.parametrize("truth", TRUTHS)
def test_hostile_texts_get_a_finite_score(name: str, truth: Any) -> None:
    scores = score(name, list(HOSTILE.values()), [truth] * len(HOSTILE))
    assert len(scores) == len(HOSTILE)
    for label, value in zip(HOSTILE, scores, strict=True):
        assert value is None or math.isfinite(value), label


@every
def test_a_completion_is_scored_by_itself(name: str) -> None:
    completions = [*map(formatted, ("42", " 42", "$42.", "40", "x")), "<answer>42</answer>", "42", ""]
    together = score(name, completions, ["42"] * len(completions))
    assert together == [score(name, [text], ["42"])[0] for text in completions]
    assert score(name, [], []) == []


@every
def test_right_answers_earn_more_than_empty_texts(name: str) -> None:
    right, nothing = score(name, [formatted("42"), ""], ["42", "42"])
    assert right is not None
    assert nothing is not None
    assert right > nothing


@every
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
    bound = pickle.loads(pickle.dumps(dovetail.get("reward", name).bind()))
    assert callable(bound)


def test_rewards_do_not_import_jax() -> None:
    program = "import sys, dovetail\n"
    program += f"for name in {NAMES}: dovetail.get('reward', name).load()\n"
    program += "assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
