"""verl 0.9.1's evaluation metrics; only the estimates of the best of k depart."""

from __future__ import annotations

import numpy as np
import pytest
from tests.golden import Fact, load

from dovetail_lab.evaluation.best_of import pass_at_k

FUNCTION = "process_validation_metrics"
CASE = next(case for case in load("verl")[0] if case["function"] == FUNCTION)
DEPARTURE = "verl draws the k samples with replacement, which underestimates the best of k"
RIGHT = np.array(CASE["config"]["acc"][:8]).reshape(2, 4).sum(axis=1).astype(int)
"""The numbers of right samples of the two prompts with four samples each."""
EXPECTED = CASE["metrics"]["a"]["acc"]


def facts() -> list[Fact]:
    """Return the case of this file."""
    return [Fact("verl", FUNCTION, CASE["id"], DEPARTURE)]


def test_the_mean_is_pass_at_1() -> None:
    assert np.mean([pass_at_k(4, correct, 1) for correct in RIGHT]) == pytest.approx(EXPECTED["mean@4"])


@pytest.mark.parametrize("k", [2, 4])
def test_the_best_of_k_is_estimated_without_bias(k: int) -> None:
    replaced = np.mean(1 - (1 - RIGHT / 4) ** k)
    # verl's number is the mean of 1,000 resamples of each of the prompts
    assert EXPECTED[f"best@{k}/mean"] == pytest.approx(replaced, abs=4 * 0.5 / np.sqrt(2 * 1000))
    assert np.mean([pass_at_k(4, correct, k) for correct in RIGHT]) > replaced + 0.05
