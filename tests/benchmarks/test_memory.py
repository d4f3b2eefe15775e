"""The planned memory of a step is close to the memory that a process uses."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

MEMORY = Path(__file__).parents[2] / "benchmarks" / "memory.py"


@pytest.mark.slow
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
