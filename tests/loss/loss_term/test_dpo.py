"""Loss term `dpo`: pairs, losses and means by hand."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dovetail_loss.loss_agg.sequence_mean_token_mean import sequence_mean_token_mean
from dovetail_loss.loss_term.dpo import dpo

# Two prompts with two completions each, whose rows are not neighbours. Δ = 0.3, -0.2, 0.1, 0.7
LOGPS = jnp.array([[0.1, 0.2, 9.0], [-0.2, 9.0, 9.0], [0.1, 9.0, 9.0], [0.2, 0.2, 0.3]])
MASK = jnp.array([[1, 1, 0], [1, 0, 0], [1, 0, 0], [1, 1, 1]], bool)
GROUPS = jnp.array([4, -1, 4, -1])
SCORES = jnp.array([1.0, 0.0, 0.0, 2.0])
H = np.array([0.3 - 0.1, 0.7 - -0.2])
"""Δ_w - Δ_l of the pairs (0, 2) and (3, 1)."""
ORDER = np.array([2, 0, 3, 1])


def run(scores: Any = SCORES, *, logps: Any = LOGPS, groups: Any = GROUPS, mask: Any = MASK, **params: Any) -> Any:
    return dpo(logps, jnp.zeros_like(logps), jnp.asarray(scores), jnp.asarray(groups), mask, **params)


def mean(scores: Any = SCORES, **options: Any) -> jax.Array:
    """The loss of the step under the aggregation that the docstring names."""
    return jnp.sum(sequence_mean_token_mean(options.get("mask", MASK)) * run(scores, **options)[0])


def softplus(x: Any) -> Any:
    return np.log1p(np.exp(x))


def test_by_hand() -> None:
    loss, metrics = run(beta=2.0)
    first, second = softplus(-2.0 * H)
    np.testing.assert_allclose(loss[:, 0], [first, second, first, second], rtol=1e-6)
    np.testing.assert_array_equal(loss != 0, MASK)
    np.testing.assert_allclose(loss[3], [second] * 3, rtol=1e-6)
    np.testing.assert_array_equal(metrics["accuracy"], [1, 1, 1, 1])
    np.testing.assert_array_equal(metrics["paired"], [1, 1, 1, 1])
    np.testing.assert_allclose(metrics["reward_margin"], 2.0 * H[[0, 1, 0, 1]], rtol=1e-6)
    np.testing.assert_allclose(metrics["reward"], [0.6, -0.4, 0.2, 1.4], rtol=1e-6)


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"beta": 0.5}, softplus(-0.5 * H)),
        ({"beta": 0.5, "loss_type": "hinge"}, np.maximum(0, 1 - 0.5 * H)),
        ({"beta": 2.0, "loss_type": "hinge"}, np.maximum(0, 1 - 2.0 * H)),
        ({"beta": 0.5, "loss_type": "ipo"}, (H - 1.0) ** 2),
        ({"beta": 0.5, "label_smoothing": 0.1}, 0.9 * softplus(-0.5 * H) + 0.1 * softplus(0.5 * H)),
        ({"beta": 0.5, "loss_type": "ipo", "label_smoothing": 0.1}, 0.9 * (H - 1.0) ** 2 + 0.1 * (H + 1.0) ** 2),
    ],
)
def test_the_mean_over_pairs_is_that_of_the_papers(params: dict[str, Any], expected: np.ndarray) -> None:
    np.testing.assert_allclose(mean(**params), expected.mean(), rtol=1e-6)


def test_the_gradient_is_that_of_the_papers() -> None:
    """Rafailov et al. 2023, section 4: -β·σ(-β·h)·[∇log π(y_w) - ∇log π(y_l)], mean over pairs."""
    gradient = jax.grad(lambda x: mean(logps=x, beta=2.0))(LOGPS)
    push = 2.0 / (1.0 + np.exp(2.0 * H)) / 2
    np.testing.assert_allclose(gradient[:, 0], [-push[0], push[1], push[0], -push[1]], rtol=1e-5)
    np.testing.assert_array_equal(gradient == 0, ~MASK)


def test_the_score_decides_and_not_the_order_of_the_rows() -> None:
    swapped = run(SCORES[jnp.array([2, 3, 0, 1])], beta=2.0)[0]
    np.testing.assert_allclose(swapped[:2, 0], softplus(2.0 * H), rtol=1e-6)
    mixed, _ = run(SCORES[ORDER], logps=LOGPS[ORDER], groups=GROUPS[ORDER], mask=MASK[ORDER], beta=2.0)
    np.testing.assert_allclose(mixed, run(beta=2.0)[0][ORDER], rtol=1e-6)


def test_a_tie_is_no_pair_and_counts_in_the_mean() -> None:
    scores = jnp.array([1.0, 2.0, 1.0, 0.0])
    loss, metrics = run(scores, beta=2.0)
    np.testing.assert_array_equal(loss[jnp.array([0, 2])], jnp.zeros((2, 3)))
    np.testing.assert_allclose(mean(scores, beta=2.0), softplus(2.0 * H[1]) / 2, rtol=1e-6)
    np.testing.assert_array_equal(metrics["paired"], [0, 1, 0, 1])
    np.testing.assert_array_equal(metrics["accuracy"], [0.5, 0, 0.5, 0])


@pytest.mark.parametrize(("margin", "paired"), [(0.0, [1, 1]), (1.0, [1, 1]), (1.5, [0, 1]), (2.5, [0, 0])])
def test_scores_closer_than_the_margin_are_no_pair(margin: float, paired: list[int]) -> None:
    np.testing.assert_array_equal(run(margin=margin)[1]["paired"][:2], paired)


def test_a_group_of_more_gives_the_mean_over_its_pairs() -> None:
    """Scores 2, 1, 1, 0 of one prompt: five pairs of six, the two in the middle are equal."""
    deltas = np.array([0.3, -0.2, 0.1, 0.7])
    pairs = [(0, 1), (0, 2), (0, 3), (1, 3), (2, 3)]
    expected = np.mean([softplus(-(deltas[better] - deltas[worse])) for better, worse in pairs])
    options = {"groups": jnp.zeros(4, jnp.int32), "beta": 1.0}
    np.testing.assert_allclose(mean(jnp.array([2.0, 1.0, 1.0, 0.0]), **options), expected, rtol=1e-6)


def test_extremes_are_the_best_against_the_worst() -> None:
    deltas = np.array([0.3, -0.2, 0.1, 0.7])
    options = {"groups": jnp.zeros(4, jnp.int32), "beta": 1.0, "pairs": "extremes"}
    one = mean(jnp.array([2.0, 1.0, 1.5, 0.0]), **options)
    np.testing.assert_allclose(one, softplus(-(deltas[0] - deltas[3])), rtol=1e-6)
    shared = mean(jnp.array([2.0, 2.0, 1.0, 0.0]), **options)
    expected = np.mean([softplus(-(deltas[w] - deltas[3])) for w in (0, 1)])
    np.testing.assert_allclose(shared, expected, rtol=1e-6)


def test_an_empty_completion_is_in_no_pair_and_its_score_is_not_read() -> None:
    mask, scores = MASK.at[2].set(False), SCORES.at[2].set(jnp.nan)
    loss, metrics = run(scores, mask=mask, beta=2.0)
    np.testing.assert_array_equal(loss[jnp.array([0, 2])], jnp.zeros((2, 3)))
    np.testing.assert_allclose(loss[1, 0], softplus(-2.0 * H[1]), rtol=1e-6)
    np.testing.assert_array_equal(metrics["paired"], [0, 1, 0, 1])


def test_where_the_policy_is_the_reference_nothing_is_ranked_yet() -> None:
    loss, metrics = run(logps=jnp.zeros_like(LOGPS))
    np.testing.assert_allclose(loss[MASK], np.log(2.0), rtol=1e-6)
    np.testing.assert_array_equal(metrics["accuracy"], jnp.full(4, 0.5))
