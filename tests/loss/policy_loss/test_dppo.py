"""Policy losses `dppo_tv` and `dppo_kl`."""

from __future__ import annotations

import numpy as np
import pytest
from tests.loss.policy_loss.by_hand import fields, gradient, result

NEW = np.array([[0.9, 0.9, 0.3, 0.3, 0.002]])
OLD = np.array([[0.6, 0.6, 0.6, 0.6, 0.001]])
ADVANTAGES = np.array([[1.0, -1.0, 1.0, -1.0, 1.0]])
AT = fields(np.log(NEW), ADVANTAGES, old_logps=np.log(OLD))

both = pytest.mark.parametrize("name", ["dppo_tv", "dppo_kl"])


@both
def test_it_drops_what_is_pushed_further_out(name: str) -> None:
    _, metrics = result(name, AT)
    np.testing.assert_array_equal(metrics["clip_fraction_high"], [[1, 0, 0, 0, 0]])
    np.testing.assert_array_equal(metrics["clip_fraction_low"], [[0, 0, 0, 1, 0]])
    expected = -ADVANTAGES * NEW / OLD * [[0, 1, 1, 0, 1]]
    np.testing.assert_allclose(gradient(name, AT), expected, rtol=1e-5)


@both
def test_a_rare_token_may_double_where_ppo_stops_it(name: str) -> None:
    assert gradient(name, AT)[0, -1] != 0
    assert gradient("ppo", AT)[0, -1] == 0


def test_total_variation_by_hand() -> None:
    at = fields(np.log([[0.5, 0.5]]), 1.0, old_logps=np.log([[0.36, 0.34]]))
    np.testing.assert_array_equal(result("dppo_tv", at)[1]["clip_fraction"], [[0, 1]])


def test_divergence_by_hand() -> None:
    # KL(0.5 || 0.64) = 0.5·log(0.5/0.64) + 0.5·log(0.5/0.36) = 0.0408; with 0.66: 0.0540
    at = fields(np.log([[0.64, 0.66]]), 1.0, old_logps=np.log(0.5))
    np.testing.assert_array_equal(result("dppo_kl", at)[1]["clip_fraction"], [[0, 1]])


@both
def test_the_weight_is_truncated(name: str) -> None:
    at = fields(np.log([[0.06, 0.06]]), [[1.0, -1.0]], old_logps=np.log(0.001))
    loss_gradient, metrics = gradient(name, at, max_ratio=20.0, epsilon_high=1.0), result(name, at, epsilon_high=1.0)[1]
    np.testing.assert_allclose(loss_gradient, [[-20.0, 20.0]], rtol=1e-6)
    np.testing.assert_array_equal(metrics["truncated_fraction"], [[1, 1]])


@both
def test_certain_tokens_are_finite(name: str) -> None:
    at = fields([[0.0, -1e-9, -30.0]], [[1.0, -1.0, 1.0]], old_logps=[[-1e-9, 0.0, 0.0]])
    assert np.isfinite(gradient(name, at)).all()
