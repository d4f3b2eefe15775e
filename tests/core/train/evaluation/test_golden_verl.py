"""verl 0.9.1: figures of an evaluation from several samples of each prompt."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from tests.golden import load

from dovetail.train.evaluation.statistics import majority_at_k, pass_at_k


@pytest.fixture
def theirs() -> dict[str, float]:
    return case()["metrics"]["a"]["acc"]


def case() -> dict:
    (found,) = (c for c in load("verl")[0] if c["kind"] == "metrics" and c["function"] == "process_validation_metrics")
    return found


def prompts() -> list[tuple[list[bool], list[str]]]:
    """Whether each sample is right, and its answer, by prompt of the source `a`."""
    config, found = case()["config"], defaultdict(lambda: ([], []))
    columns = zip(config["data_sources"], config["sample_uids"], config["acc"], config["pred"], strict=True)
    for source, prompt, right, answer in columns:
        if source == "a":
            found[prompt][0].append(bool(right))
            found[prompt][1].append(answer)
    return list(found.values())


def test_the_mean_over_samples_is_pass_at_1_and_the_majority_of_one(theirs: dict[str, float]) -> None:
    found = [(pass_at_k(4, sum(right), 1), majority_at_k(answers, right, 1)) for right, answers in prompts()]
    np.testing.assert_allclose(np.mean(found, axis=0), theirs["mean@4"])


@pytest.mark.parametrize("k", [2, 4])
def test_pass_at_k_departs_from_a_bootstrap_that_draws_a_sample_twice(k: int, theirs: dict[str, float]) -> None:
    """verl draws k of 4 samples with replacement, a thousand times: noisy, and too low, as copies find nothing new."""
    with_replacement = np.mean([1 - (1 - sum(right) / 4) ** k for right, _ in prompts()])
    np.testing.assert_allclose(theirs[f"best@{k}/mean"], with_replacement, atol=0.02)
    ours = np.mean([pass_at_k(4, sum(right), k) for right, _ in prompts()])
    assert ours > with_replacement + 0.05
