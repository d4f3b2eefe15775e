"""Policy losses `clip_cov` and `kl_cov`; see field/test_selections.py for whom they select."""

from __future__ import annotations

import numpy as np
from tests.loss.policy_loss.by_hand import fields, gradient, result, value

RATIOS = np.array([[1.1, 1.1, 1.5, 0.8]])
SELECTED = np.array([[True, False, True, True]])
AT = fields(np.log(RATIOS), [[1.0, 1.0, 1.0, -1.0]], clip_cov_tokens=SELECTED, kl_cov_tokens=SELECTED)
AT |= {name: AT[name].astype(bool) for name in ("clip_cov_tokens", "kl_cov_tokens")}


def test_clip_cov_drops_the_selected_tokens_but_for_those_that_ppo_clips() -> None:
    np.testing.assert_allclose(value("clip_cov", AT), [[0.0, -1.1, -1.2, 0.0]], rtol=1e-6)
    np.testing.assert_allclose(gradient("clip_cov", AT), [[0.0, -1.1, 0.0, 0.0]], rtol=1e-6)
    np.testing.assert_array_equal(result("clip_cov", AT)[1]["cov_fraction"], [[1, 0, 0, 1]])


def test_kl_cov_penalises_the_selected_tokens_and_clips_none() -> None:
    distance = np.abs(np.log(RATIOS)) * SELECTED
    plain = -RATIOS * [[1.0, 1.0, 1.0, -1.0]]
    np.testing.assert_allclose(value("kl_cov", AT, kl_coef=0.5), plain + 0.5 * distance, rtol=1e-6)
    pull = 0.5 * np.sign(np.log(RATIOS)) * SELECTED
    np.testing.assert_allclose(gradient("kl_cov", AT, kl_coef=0.5), plain + pull, rtol=1e-6)
    np.testing.assert_array_equal(result("kl_cov", AT)[1]["cov_fraction"], SELECTED)


def test_on_policy_the_penalty_does_not_pull() -> None:
    at = AT | {"old_logps": AT["logps"]}
    np.testing.assert_allclose(gradient("kl_cov", at), [[-1.0, -1.0, -1.0, 1.0]], rtol=1e-6)
