"""A few kills of the campaign, so that its command stays in order; docs/security.md says what more have come to."""

import json
import subprocess
import sys

import pytest
from tests.campaign.kill import CONFIGURATIONS, LONGER

from dovetail.config import load


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_configuration_is_one(name):
    assert load(None, [*LONGER, *CONFIGURATIONS[name]]).run.checkpoint_every == 3


@pytest.mark.slow
def test_two_kills():
    command = [sys.executable, "-m", "tests.campaign", "kill", "--times", "2", "--only", "sampling ahead"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["sampling ahead"]
    assert 1 <= found["kills"] <= 2  # a run that is faster than the one that was timed may end before a moment comes
    assert found["compared"] > 10
    assert found["differs"] == []
