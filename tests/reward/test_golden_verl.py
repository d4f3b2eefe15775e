"""Every score of verl's scorers that has a counterpart: reproduced, or a departure with a reason."""

from __future__ import annotations

import importlib.util
from collections import defaultdict
from typing import Any

import pytest
from tests.golden import Fact
from tests.reward.verl_rows import (
    DEPARTURES,
    VERL_COMPATIBLE_DEPARTURES,
    Row,
    case,
    ours,
    reward_of,
    rows,
    theirs,
)

from dovetail_reward._verl import hendrycks
from dovetail_reward.reward._minerva import minerva
from dovetail_reward.reward.gsm8k import gsm8k

ROWS = rows()
TEXTS = {
    "gsm8k.extract_solution": None,
    "math_dapo.normalize_final_answer": minerva,
    "math_reward.strip_string": hendrycks,
}
BY_REWARD: dict[str, list[Row]] = defaultdict(list)
for each in ROWS:
    if (reward := reward_of(each)) and "error" not in each:
        BY_REWARD[reward].append(each)


def facts() -> list[Fact]:
    """Return the rows of this file; a row that has no counterpart as a reward is a text in normal form."""
    found = []
    for number, row in enumerate(ROWS):
        name = reward_of(row)
        if name and "error" not in row:
            reasons = [reason for reason, listed in DEPARTURES[name].items() if case(row) in listed]
            apart = reasons[0] if reasons and ours(row) != theirs(row) else ""
            found.append(Fact("verl_rewards", row["function"], str(number), apart))
        elif row["function"] in TEXTS:
            found.append(Fact("verl_rewards", row["function"], str(number)))
    return found


by_reward = pytest.mark.parametrize("name", sorted(BY_REWARD))


def needs_library(name: str) -> None:
    if name in ("geo3k", "math_verify") and importlib.util.find_spec("math_verify") is None:
        pytest.skip("math-verify is not installed")


@by_reward
def test_verl_compatible_gives_verls_scores(name: str) -> None:
    needs_library(name)
    given = [row for row in BY_REWARD[name] if not row["function"].startswith("prime_math")]
    different = [case(row) for row in given if ours(row, verl_compatible=True) != theirs(row)]
    assert different == VERL_COMPATIBLE_DEPARTURES.get(name, [])


@by_reward
def test_every_departure_is_listed_with_its_reason(name: str) -> None:
    needs_library(name)
    listed: list[tuple[str, Any]] = [listed for cases in DEPARTURES[name].values() for listed in cases]
    found = [case(row) for row in BY_REWARD[name] if ours(row) != theirs(row)]
    assert [different for different in found if different not in listed] == []
    shared = [c for cases in DEPARTURES["math"].values() for c in cases]
    assert [c for c in listed if c not in found and c not in shared] == []


def test_normal_forms() -> None:
    for function in (hendrycks, minerva):
        given = [row for row in ROWS if TEXTS.get(row["function"]) is function]
        assert len(given) > 40
        assert [row for row in given if function(row["ground_truth"]) != row["score"]] == []


def test_extraction_of_gsm8k() -> None:
    given = [row for row in ROWS if row["function"] == "gsm8k.extract_solution"]
    for row in given:
        params = {"method": row["method"], "format_score": 0.1, "verl_compatible": True}
        assert gsm8k([row["solution_str"]], [row["score"] or ""], **params) == (
            [0.0] if row["score"] is None else [1.0]
        ), row


def test_what_is_covered() -> None:
    scored = {id(row) for given in BY_REWARD.values() for row in given}
    rest = {row["function"] for row in ROWS if id(row) not in scored and "error" not in row}
    assert rest == {*TEXTS}
    assert sum(map(len, BY_REWARD.values())) == 649
