"""The records of a run as columns."""

from __future__ import annotations

import json

import pytest

from dovetail.errors import RunError
from dovetail_lab.one_run import open_run


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
