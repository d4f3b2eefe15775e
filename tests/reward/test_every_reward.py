"""What holds for every registered reward that reads completions and an answer; a new one joins by being registered."""

from __future__ import annotations

import importlib.util
import math
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.reward.texts import HOSTILE, formatted

import dovetail

NAMES = dovetail.names("reward")
TRUTHS = ("42", 42, 0, -1.5, "", "Paris", "inf", "nan", "1e999999999999999999999", None)
PARAMS: dict[str, dict[str, Any]] = {
    "compute_score": {"path": str(Path(__file__).with_name("own_scores.py"))},
    "remote": {"url": "http://localhost:9"},
}
ELSEWHERE = ("model", "remote")
"""They need a model, or a server: their own tests have one."""
OWN = {"data_source": "", "extra_info": None, "ground_truth": "42"}
PAIRS = {"compute_score": ({"completions": "42", **OWN}, {"completions": "", **OWN})}
"""A good and a bad completion of the rewards that cannot declare any."""
NEED_LIBRARY = ("geo3k", "math_verify")
LIBRARY = importlib.util.find_spec("math_verify") is not None
SLOW = (*NEED_LIBRARY, "code")
"""They start a process after every text that takes too long, or for every text."""

every = pytest.mark.parametrize("name", NAMES)
local = pytest.mark.parametrize(
    ("name", "params"),
    [
        pytest.param(name, params, id="-".join([name, *params]))
        for name in NAMES
        for params in ({}, {"verl_compatible": True})
        if (params.keys() <= dovetail.get("reward", name).params.keys())
        and (LIBRARY or name not in NEED_LIBRARY)
        and name not in ELSEWHERE
    ],
)


def pair(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    declared = dovetail.get("reward", name).declares
    return PAIRS[name] if name in PAIRS else (declared["good"], declared["bad"])


def score(name: str, records: list[dict[str, Any]], **params: Any) -> list[float | None]:
    component = dovetail.get("reward", name)
    columns = [[record[read] for record in records] for read in component.reads]
    returned = component.bind(**PARAMS.get(name, {}), **params)(*columns)
    return returned[0] if isinstance(returned, tuple) else returned


@local
def test_hostile_texts_get_a_finite_score(name: str, params: dict[str, Any]) -> None:
    good, _ = pair(name)
    labels = list(HOSTILE)[:: 7 if name in SLOW else 1]
    if name in SLOW:
        params = params | {"time_limit": 0.1}
    truths = TRUTHS if "answer" in good and name not in (*SLOW, "rlla") else (good.get("answer"),)
    for truth in truths:
        scores = score(name, [good | {"completions": HOSTILE[label], "answer": truth} for label in labels], **params)
        assert len(scores) == len(labels)
        for label, value in zip(labels, scores, strict=True):
            assert value is None or math.isfinite(value), (label, truth)


@local
def test_a_completion_is_scored_by_itself(name: str, params: dict[str, Any]) -> None:
    good, bad = pair(name)
    texts = [*map(formatted, ("42", " 42", "$42.", "40", "x")), "<answer>42</answer>", "42", ""]
    records = [good, bad, *(good | {"completions": text} for text in (texts[:3] if name == "code" else texts))]
    together = score(name, records, **params)
    assert together == [score(name, [record], **params)[0] for record in records]
    assert score(name, [], **params) == []


@local
def test_good_completions_earn_more_than_bad_ones(name: str, params: dict[str, Any]) -> None:
    good, bad = score(name, list(pair(name)), **params)
    low, high = dovetail.get("reward", name).declares["range"]
    assert good is not None
    assert bad is not None
    assert low <= bad < good <= high


@every
def test_every_reward_declares_what_it_promises(name: str) -> None:
    component = dovetail.get("reward", name)
    assert set(component.declares) == {"range", "good", "bad", "deterministic"}
    if name not in ("compute_score", *ELSEWHERE):
        assert set(component.reads) == set(component.declares["good"]) == set(component.declares["bad"])


@every
def test_the_page_of_every_reward_says_what_it_reads_and_shows_it(name: str) -> None:
    component = dovetail.get("reward", name)
    assert "Args:" in component.doc
    assert ">>>" in component.doc
    arguments = component.doc.partition("Args:")[2]
    for word in (*component.reads, *component.params):
        assert re.search(rf"^ +([\w, ]+, )?{word}(, [\w, ]+)?:", arguments, re.MULTILINE), word


@pytest.mark.parametrize("name", [name for name in NAMES if "answer_start" in dovetail.get("reward", name).params])
def test_tags_are_taken_literally(name: str) -> None:
    params = dovetail.get("reward", name).params
    tags = {tag: f"(.*{tag}+?" for tag in params if tag.endswith(("_start", "_end"))}
    text = formatted("42")
    for tag, spelling in tags.items():
        text = text.replace(params[tag], spelling)

    def of(text: str, **params: Any) -> list[float | None]:
        return score(name, [{"completions": text, "answer": "42"}], **params)

    assert of(text, **tags) == of(formatted("42"))
    assert of(formatted("42"), **tags) == of("")


@pytest.mark.parametrize("name", [name for name in NAMES if name != "model"])
def test_a_bound_reward_pickles(name: str) -> None:
    bound = pickle.loads(pickle.dumps(dovetail.get("reward", name).bind(**PARAMS.get(name, {}))))
    assert callable(bound)


def test_rewards_do_not_import_jax() -> None:
    program = "import sys, dovetail\n"
    program += f"for name in {NAMES}: dovetail.get('reward', name).load()\n"
    program += "assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
