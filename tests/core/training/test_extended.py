"""A run goes on to another number of steps than it began with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.core.training.cut_off import cut_off
from tests.core.training.test_loop import assert_same_parameters
from tests.core.training.tiny import TINY

from dovetail.config import load
from dovetail.run.files import read_lines
from dovetail.training.loop import train

FLAT = ("train.lr_schedule=constant", "sft.steps=0")
RECORDS = ("metrics.jsonl", "samples.jsonl", "eval.jsonl")


def run(folder: Path, steps: int, *overrides: str) -> None:
    train(load(None, [*TINY, *FLAT, f"train.steps={steps}", *overrides]), folder)


@pytest.fixture(scope="module")
def in_one_piece(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("extended") / "whole"
    run(folder, 4)
    return folder


def test_a_finished_run_goes_on_as_if_it_had_been_longer_from_the_start(in_one_piece, tmp_path, capsys):
    run(tmp_path, 2)
    before = json.loads((tmp_path / "run.json").read_text())["run_id"]
    run(tmp_path, 4)
    said = capsys.readouterr().err
    assert f"train.steps = 2 -> 4: the run in '{tmp_path}' goes on with 4\n" in said
    assert "in one piece" not in said, "a constant learning rate does not follow the number of steps"
    for name in RECORDS:
        assert (tmp_path / name).read_bytes() == (in_one_piece / name).read_bytes(), name
    assert_same_parameters(tmp_path, in_one_piece)
    assert (tmp_path / "config.gin").read_bytes() == (in_one_piece / "config.gin").read_bytes()
    now = json.loads((tmp_path / "run.json").read_text())
    assert now["run_id"] == json.loads((in_one_piece / "run.json").read_text())["run_id"]
    assert now["extended"] == [{"run_id": before, "from": 2, "to": 4, "after": 2}]


def test_an_end_that_was_evaluated_stays_in_the_records(tmp_path):
    run(tmp_path, 1)
    with cut_off(2):
        run(tmp_path, 3)
    run(tmp_path, 3)
    evaluated = [line["step"] for line in read_lines(tmp_path / "metrics.jsonl") if "eval/accuracy" in line]
    assert evaluated == [0, 1, 2, 3]
    assert [line["step"] for line in read_lines(tmp_path / "metrics.jsonl") if "optimizer/lr" in line] == [1, 2, 3]
