"""Policy loss `grpo`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.loss.batch import make_batch

import dovetail
from dovetail_loss.policy_loss.grpo import grpo
from dovetail_loss.policy_loss.ppo import ppo


@pytest.mark.parametrize(
    "params", [{}, {"epsilon_low": 0.1, "epsilon_high": 0.28}, {"epsilon_low": 0.05, "clip_c": 1.1}]
)
def test_per_token_it_is_ppo(params: dict[str, Any]) -> None:
    batch = make_batch()
    fields = [batch[name] for name in dovetail.get("policy_loss", "grpo").reads]
    loss, metrics = grpo(*fields, **params)
    expected_loss, expected_metrics = ppo(*fields, **params)
    np.testing.assert_array_equal(loss, expected_loss)
    assert metrics.keys() == expected_metrics.keys()
    for name, metric in metrics.items():
        np.testing.assert_array_equal(metric, expected_metrics[name])


def test_it_has_the_interface_of_ppo() -> None:
    ours, theirs = dovetail.get("policy_loss", "grpo"), dovetail.get("policy_loss", "ppo")
    assert (ours.reads, dict(ours.params)) == (theirs.reads, dict(theirs.params))
    assert "ref_logps" not in ours.reads  # KL is a component of its own
