"""The declarations of policy losses about corrections and other components beside them."""

from __future__ import annotations

import pytest

import dovetail

CORRECTED = ("decoupled_ppo", "ipo", "m2po", "rollout_is")


def test_those_that_read_the_sampler_are_these():
    """A new loss must be added to the list, or declare why a correction beside it does not count twice."""
    readers = {
        name for name in dovetail.names("policy_loss") if "rollout_logps" in dovetail.get("policy_loss", name).reads
    }
    assert readers == set(CORRECTED)


@pytest.mark.parametrize("name", CORRECTED)
def test_a_loss_that_divides_by_the_sampler_excludes_corrections(name):
    assert dovetail.get("policy_loss", name).declares["excludes"] == ("correction",)


@pytest.mark.parametrize("name", sorted(set(dovetail.names("policy_loss")) - set(CORRECTED)))
def test_every_other_loss_takes_one(name):
    assert "excludes" not in dovetail.get("policy_loss", name).declares
