"""The planned memory of a step is close to the memory that a process uses."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

MEMORY = Path(__file__).parents[2] / "benchmarks" / "memory.py"


@pytest.mark.slow
@pytest.mark.exhaustive  # tests/memory/test_liveness.py compares the plan of this update with what XLA allocates
def test_the_plan_is_within_15_percent_of_what_is_measured():
    command = [sys.executable, str(MEMORY), "plan", "W1"]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=1200).stdout
    (found,) = json.loads(printed)["runs"]
    assert found["planned_mib"] == pytest.approx(found["measured_mib"], rel=0.15)


def test_a_configuration_that_does_not_exist():
    command = [sys.executable, str(MEMORY), "plan", "W9"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=600)
    assert done.returncode == 2
    assert "unknown configuration 'W9'; there are W1, critic" in done.stderr


@pytest.mark.slow
def test_the_memory_of_an_update_grows_with_the_tokens_and_not_with_their_square():
    """Where attention stores its scores, four times the tokens take sixteen times the scores."""
    command = [sys.executable, str(MEMORY), "length", "512", "2048", "--allocated"]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=1200).stdout
    size = {(found["attention"], found["tokens"]): found["allocated_mib"] for found in json.loads(printed)}
    assert size["auto", 2048] < 4.2 * size["auto", 512]
    assert size["auto", 2048] < 0.8 * size["dense", 2048]
