"""Corrections on cases computed by hand, and how they fit together."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from tests.loss.batch import Batch
from tests.loss.correction.run import correct, measured

import dovetail
from dovetail.step.parts import split_metrics

RATIOS = np.array([[2.0, 0.5, 4.0], [1.0, 0.25, 99.0], [8.0, 1.0, 1.0]])
"""π/μ of three completions: products 4, 1/4 and 8, geometric means 4^(1/3), 1/2 and 2."""

BATCH: Batch = {
    "old_logps": np.log(RATIOS).astype(np.float32) - 5.0,
    "rollout_logps": np.full((3, 3), -5.0, np.float32),
    "mask": np.array([[True, True, True], [True, True, False], [True, True, True]]),
}


def check(name: str, weights: Any, **params: Any) -> None:
    """Compare the weights; None means that the token is rejected."""
    expected = np.array([[np.nan if w is None else w for w in row] for row in weights], float)
    found, kept = correct(name, BATCH, **params)
    np.testing.assert_array_equal(kept, BATCH["mask"] & ~np.isnan(expected))
    np.testing.assert_allclose(found, np.nan_to_num(expected), rtol=1e-5, atol=1e-7)


def test_truncated_by_token() -> None:
    check("tis_token", [[2, 0.5, 3], [1, 0.25, 0], [3, 1, 1]], upper=3.0)


def test_truncated_by_completion() -> None:
    check("tis_sequence", [[4, 4, 4], [0.25, 0.25, 0], [5, 5, 5]], upper=5.0)


def test_truncated_by_geometric_mean() -> None:
    mean = 4 ** (1 / 3)
    check("tis_geometric", [[mean] * 3, [0.5, 0.5, 0], [1.9] * 3], upper=1.9)


def test_normalised_over_completions_a_long_one_counts_once() -> None:
    mean = (4 + 0.25 + 5) / 3
    weights = [[4 / mean] * 3, [0.25 / mean, 0.25 / mean, 0], [5 / mean] * 3]
    check("tis_sequence", weights, upper=5.0, normalize=True)


def test_icepop_keeps_its_bounds() -> None:
    check("icepop", [[2, 0.5, 4], [1, 0, 0], [0, 1, 1]], lower=0.4, upper=4.1)
    check("icepop", [[2, 0.5, 4], [1, 0.25, 0], [0, 1, 1]], lower=None, upper=4.1)


def test_sequence_mask() -> None:
    check("sequence_mask", [[4, 4, 4], [0.25, 0.25, 0], [None] * 3], upper=5.0)
    check("sequence_mask", [[4, 4, 4], [None] * 3, [None] * 3], lower=0.5, upper=5.0)
    check("sequence_mask", [[1, 1, 1], [None] * 3, [None] * 3], lower=0.5, upper=5.0, normalize=True)


def test_sequence_mask_tis_truncates_only_if_asked() -> None:
    check("sequence_mask_tis", [[2, 0.5, 4], [None] * 3, [8, 1, 1]], lower=0.6, upper=2.1)
    check("sequence_mask_tis", [[2, 0.5, 3], [None] * 3, [3, 1, 1]], lower=0.6, upper=2.1, truncate_at=3.0)


def test_token_veto() -> None:
    check("token_veto", [[1, 1, 1], [None] * 3, [1, 1, 1]], threshold=0.3)


LOG2 = float(np.log(2.0))


@pytest.mark.parametrize(
    ("divergence", "over", "bounds", "weights"),
    [
        # k1 of the tokens, in units of log 2: (-1, 1, -2), (0, 2), (-3, 0, 0)
        ("k1", "token", {"high": 1.5 * LOG2}, [[1, 1, None], [1, None, None], [None, 1, 1]]),
        ("k1", "token", {"low": -2.5 * LOG2, "high": 1.5 * LOG2}, [[1, 1, 1], [1, None, None], [None, 1, 1]]),
        ("k1", "sum", {"high": 2.1 * LOG2}, [[1, 1, 1], [1, 1, None], [None] * 3]),
        ("k1", "mean", {"high": 0.9 * LOG2}, [[1, 1, 1], [None] * 3, [None] * 3]),
        ("k1", "max", {"low": -2.1 * LOG2, "high": 1.1 * LOG2}, [[1, 1, 1], [None] * 3, [None] * 3]),
        # k2: halves of squares, (1, 1, 4), (0, 4), (9, 0, 0)
        ("k2", "token", {"high": 1.0 * LOG2**2}, [[1, 1, None], [1, None, None], [None, 1, 1]]),
        ("k2", "sum", {"high": 3.5 * LOG2**2}, [[1, 1, 1], [1, 1, None], [None] * 3]),
        ("k2", "mean", {"high": 1.2 * LOG2**2}, [[1, 1, 1], [1, 1, None], [None] * 3]),
        ("k2", "max", {"high": 2.1 * LOG2**2}, [[1, 1, 1], [1, 1, None], [None] * 3]),
        # k3 = r - 1 - log r: (0.31, 0.19, 1.61), (0, 0.64), (4.92, 0, 0)
        ("k3", "token", {"high": 1.0}, [[1, 1, None], [1, 1, None], [None, 1, 1]]),
        ("k3", "mean", {"high": 0.5}, [[None] * 3, [1, 1, None], [None] * 3]),
    ],
)
def test_reject(divergence: str, over: str, bounds: dict[str, float], weights: Any) -> None:
    check("reject", weights, divergence=divergence, over=over, **bounds)


def test_tis_reject_is_its_parts_together() -> None:
    params = {"divergence": "k1", "over": "mean", "high": 0.9 * LOG2}
    _, kept = correct("reject", BATCH, **params)
    for level, part in (("token", "tis_token"), ("sequence", "tis_sequence"), ("geometric", "tis_geometric")):
        weights, both = correct("tis_reject", BATCH, level=level, upper=3.0, **params)
        np.testing.assert_array_equal(both, kept)
        np.testing.assert_allclose(weights, np.where(kept, correct(part, BATCH, upper=3.0)[0], 0.0))
    check("tis_reject", [[1.5, 0.5, 1.5], [None] * 3, [1.5, 1, 1]], upper=1.5, high=9.0, veto=0.3)


def test_what_the_engine_measures() -> None:
    weights, _ = correct("token_veto", BATCH, threshold=0.3)
    metrics = measured(BATCH, weights)
    x = np.log([2.0, 0.5, 4.0, 1.0, 0.25, 8.0, 1.0, 1.0])
    r = np.exp(x)
    expected = {
        "abs_mean": np.abs(x).mean(),
        "abs_max": np.log(8.0),
        "kl_k1": -x.mean(),
        "kl_k3": (r - 1 - x).mean(),
        "perplexity_ratio": (4 ** (-1 / 3) + 2 + 0.5) / 3,
        "ratio_mean": r.mean(),
        "chi_squared": (r**2).mean() - 1,
        "chi_squared_sequence": np.mean([4.0**2, 0.25**2, 8.0**2]) - 1,
        "effective_sample_size": r.sum() ** 2 / (8 * (r**2).sum()),
        "correction/weight_mean": 6 / 8,
        "correction/effective_sample_size": 6 / 8,
        "correction/rejected_tokens": 2 / 8,
        "correction/rejected_completions": 1 / 3,
    }
    assert metrics == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("counted", [False, True])
def test_a_rejected_completion_leaves_the_statistics_of_its_group(counted: bool) -> None:
    _, kept = correct("token_veto", BATCH, threshold=0.3, count_rejected=counted)
    scores = jnp.array([1.0, 100.0, 0.0])
    fields = {"scores": scores, "group_ids": jnp.zeros(3, int), "mask": kept}
    estimator = dovetail.get("advantage", "rloo")
    advantages, _ = split_metrics(estimator.bind()(*(fields[name] for name in estimator.reads)))
    baseline = {False: 0.0, True: 50.0}[counted]
    assert float(advantages[0, 0]) == pytest.approx(1.0 - baseline)
