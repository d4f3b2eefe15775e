"""Figures of an evaluation and their intervals."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dovetail.config import load
from dovetail.training.columns import make_scorer
from dovetail_lab.evaluation.report import Report, ends_of, figures
from dovetail_lab.evaluation.statistics import wilson


def test_the_interval_of_a_reward_knows_its_range():
    """Neither of two completions has the format, which is worth 3, so the interval is not that of a share, 0.658."""
    scorer = make_scorer(load(None, ["train.rewards=['match_format_exactly', 'check_answer']"]))
    columns = {
        "accuracy": np.zeros(2),
        "truncated": np.ones(2),
        "reward/match_format_exactly": np.zeros(2),
        "reward/check_answer": np.array([0.5, 1.5]),
        "reward_mean": np.zeros(2),
        "length_mean": np.ones(2),
    }
    found = figures(columns, ["all"] * 2, ends_of(columns, scorer))["all"]
    share = wilson(0, 2)[1]
    assert (found["accuracy"].low, found["accuracy"].high) == (0.0, pytest.approx(share))
    assert found["truncated"].low == pytest.approx(1 - share)
    assert found["reward/match_format_exactly"].high == pytest.approx(3 * share)
    assert (found["reward/check_answer"].low, found["reward/check_answer"].high) == (0.5, 1.5)
    assert found["reward_mean"].high == 0.0, "nothing is known of what a weighted sum lies between"
    assert found["length_mean"].high == 1.0, "a length of one is not a share"


def test_its_config_is_read_from_another_folder_with_the_same_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.jsonl").write_text("")
    config = load(None, ["train.task=records", "task.records.path=data.jsonl"])
    written: Any = SimpleNamespace(config=config, records=[], json=lambda: "{}")
    Report.write(written, tmp_path / "out")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    again = load(tmp_path / "out" / "config.gin")
    assert (again, again.choice("train.task").used["path"]) == (config, f"{tmp_path}/data.jsonl")
