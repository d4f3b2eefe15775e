"""A small extract of verl's scores, which runs everywhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.reward.verl_rows import DEPARTURES, Row, case, ours, reward_of, theirs

ROWS: list[Row] = json.loads((Path(__file__).parents[1] / "fixtures" / "rewards.json").read_text())["rows"]


@pytest.mark.parametrize("row", ROWS, ids=[f"{i}-{row['function']}" for i, row in enumerate(ROWS)])
def test_extract(row: Row) -> None:
    assert ours(row, verl_compatible=True) == theirs(row)
    name = reward_of(row)
    assert name is not None
    departures = [listed for cases in DEPARTURES[name].values() for listed in cases]
    assert ours(row) == theirs(row) or case(row) in departures


def test_the_extract_covers_every_reward_that_needs_no_library() -> None:
    assert {reward_of(row) for row in ROWS} == {"gsm8k", "math", "math_dapo", "exact_match_qa"}
    assert any(ours(row) != theirs(row) for row in ROWS)
