"""The records of a run as columns."""

from __future__ import annotations

import json

import pytest

from dovetail.errors import RunError
from dovetail.run.folder import open_folder
from dovetail_lab.one_run import load, open_run, train


@pytest.mark.parametrize("records", ["metrics", "timings", "samples"])
def test_a_phase_that_does_not_exist_is_refused_and_says_where_evaluations_are(tmp_path, records):
    (tmp_path / "run.json").write_text(json.dumps({"run_id": "a"}))
    (tmp_path / "metrics.jsonl").write_text(json.dumps({"phase": "rl", "step": 0, "eval/accuracy": 0.5}) + "\n")
    read = getattr(open_run(tmp_path), records)
    with pytest.raises(
        RunError, match=r"no phase 'eval'; phases: 'sft', 'rl', None for both.*metrics\('rl'\).*eval.jsonl"
    ):
        read("eval")
    for phase in ("sft", "rl", None):
        read(phase)


def test_a_run_is_resumed_from_another_folder_with_its_own_files(tmp_path, monkeypatch):
    work, elsewhere = tmp_path / "work", tmp_path / "elsewhere"
    work.mkdir()
    elsewhere.mkdir()
    (work / "mine.py").write_text("def right(completions):\n    return [1.0 for _ in completions]\n")
    settings = {"train.rewards": ("functions",), "reward.functions.path": "mine.py", "reward.functions.name": "right"}
    monkeypatch.chdir(work)
    open_folder(work / "run", load("quickstart", settings)).close()
    trained = []
    monkeypatch.setattr("dovetail.training.loop.train", lambda config, folder: trained.append(config))
    monkeypatch.chdir(elsewhere)
    train("quickstart", work / "run", settings)
    assert trained[0].choice("train.rewards[0]").used["path"] == f"{work}/mine.py"
