"""The benchmark of a step runs, and reports the documented figures."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

STEP = Path(__file__).parents[2] / "benchmarks" / "step.py"
SMALL = ("--set=model.decoder.width=32", "--set=model.decoder.layers=1", "--set=train.prompts=2")


@pytest.mark.slow
def test_it_prints_json():
    command = [sys.executable, str(STEP), "W1", "--steps=1", *SMALL]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=600).stdout
    figures = json.loads(printed)
    assert figures["workload"] == "W1"
    assert figures["completion_tokens"] == 2 * 8 * 64
    assert figures["compilations_after_step_2"] == 0
    assert {"waiting", "rollout", "reward", "scoring", "update", "sync", "step"} <= figures["parts_s"].keys()
    assert {"step_s", "rollout_tokens_per_s", "compile_s", "peak_rss_gib"} <= figures.keys()


@pytest.mark.slow
def test_a_workload_that_does_not_exist():
    done = subprocess.run([sys.executable, str(STEP), "W9"], check=False, capture_output=True, text=True, timeout=600)
    assert done.returncode == 2
    assert "unknown workload 'W9'; there are W1, W2, W3" in done.stderr
