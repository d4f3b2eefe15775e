"""Each selection on cases computed by hand."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from dovetail_loss.loss_mask.drop_truncated import drop_truncated
from dovetail_loss.loss_mask.opsm import opsm
from dovetail_loss.loss_mask.pf_ppo import pf_ppo
from dovetail_loss.loss_mask.top_entropy import top_entropy


@pytest.mark.parametrize("fraction", [0.2, 0.5, 1.0])
def test_top_entropy_is_above_the_quantile(fraction: float) -> None:
    rng = np.random.default_rng(1)
    entropy = rng.random((4, 9)).astype(np.float32)
    mask = rng.random((4, 9)) < 0.7
    expected = mask & (entropy >= np.quantile(entropy[mask], 1 - fraction))
    np.testing.assert_array_equal(top_entropy(jnp.asarray(entropy), jnp.asarray(mask), fraction=fraction), expected)


# mean of log μ - log π: 0.6, 0.6, 0.4
LOGPS = jnp.array([[-1.0, -1.2, 9.0], [-1.0, -1.2, 9.0], [-1.0, -0.8, 9.0]])
ADVANTAGES = jnp.array([[-1.0], [1.0], [-1.0]]) * jnp.ones((3, 3))
MASK = jnp.array([[True, True, False]] * 3)


def test_opsm_drops_failures_that_the_policy_has_left_behind() -> None:
    kept = opsm(LOGPS, jnp.full((3, 3), -0.5), ADVANTAGES, MASK)
    np.testing.assert_array_equal(kept, [[0, 0, 0], [1, 1, 0], [1, 1, 0]])


def test_opsm_keeps_a_failure_that_the_policy_likes_better_than_the_sampler() -> None:
    np.testing.assert_array_equal(opsm(LOGPS, jnp.full((3, 3), -5.5), ADVANTAGES, MASK), MASK)


def test_truncated_completions_leave_the_mask() -> None:
    weights, kept = drop_truncated(jnp.array([True, False, True]), MASK)
    np.testing.assert_array_equal(kept, [[0, 0, 0], [1, 1, 0], [0, 0, 0]])
    np.testing.assert_array_equal(weights, kept)


SCORES = jnp.array([1.0, 0.5, -2.0, 0.0, 3.0, 100.0])
GROUPS = jnp.array([7, 7, 7, 2, 2, 2])
LIVE = jnp.array([[True], [True], [True], [True], [True], [False]])


@pytest.mark.parametrize(
    ("params", "values"),
    [
        ({"method": "pow"}, [1, 0.25, 4, 0, 9, 0]),
        ({"method": "pow", "power": 1.0}, [1, 0.5, 2, 0, 3, 0]),
        ({"method": "max_min"}, [1, 0, 1, 1, 1, 0]),
        ({"method": "max_random"}, [1, 0.4, 0.4, 0.4, 1, 0]),
        ({"method": "max_random", "others": 0.0}, [1, 0, 0, 0, 1, 0]),
    ],
)
def test_pf_ppo_has_mean_one_over_completions(params: dict, values: list[float]) -> None:
    weights = pf_ppo(SCORES, GROUPS, LIVE, **params)[:, 0]
    np.testing.assert_allclose(weights, np.array(values) * 5 / sum(values), rtol=1e-6)


def test_pf_ppo_weighs_all_alike_where_no_score_says_anything() -> None:
    np.testing.assert_array_equal(pf_ppo(jnp.zeros(6), GROUPS, LIVE), LIVE)


def test_pf_ppo_is_the_expectation_of_verls_draw() -> None:
    """verl draws n rows with probabilities v_i ∝ |s_i|^p, so row i is drawn n·v_i/∑v times in expectation."""
    scores = np.array([0.1, 0.7, 0.4, 1.0])
    probabilities = scores**2 / (scores**2).sum()
    draws = np.random.default_rng(0).choice(4, size=(20_000, 4), p=probabilities)
    weights = pf_ppo(jnp.asarray(scores, jnp.float32), jnp.arange(4), jnp.ones((4, 1), bool))[:, 0]
    np.testing.assert_allclose(np.bincount(draws.ravel()) / len(draws), weights, rtol=0.05, atol=0.01)
