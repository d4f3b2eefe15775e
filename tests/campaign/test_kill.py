"""A few kills of the campaign, so that its command stays in order; docs/security.md says what more have come to."""

import json
import subprocess
import sys

import pytest


@pytest.mark.slow
def test_two_kills():
    command = [sys.executable, "-m", "tests.campaign", "kill", "--times", "2", "--only", "sampling ahead"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["sampling ahead"]
    assert found["kills"] == 2
    assert found["compared"] > 10
    assert found["differs"] == []
