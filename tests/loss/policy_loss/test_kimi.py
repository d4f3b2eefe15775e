"""Policy loss `kimi`."""

from __future__ import annotations

import numpy as np
from tests.loss.policy_loss.by_hand import fields, gradient, value

AT = fields([[-1.0, -2.0, 5.0]], 1.5, old_logps=[[-3.0, -1.5, 0.0]], mask=[[True, True, False]])


def test_summed_over_the_completion_it_is_the_objective_of_the_paper() -> None:
    log_ratio = (-1.0 - 2.0) - (-3.0 - 1.5)
    np.testing.assert_allclose(value("kimi", AT, tau=0.5).sum(), -1.5 * -3.0 + 0.25 * log_ratio**2, rtol=1e-6)


def test_every_token_is_pulled_by_the_whole_completion() -> None:
    pull = -1.5 + 0.5 * 1.5
    np.testing.assert_allclose(gradient("kimi", AT, tau=0.5), [[pull, pull, 0.0]], rtol=1e-6)


def test_of_one_token_it_is_dro() -> None:
    at = fields([[-1.0], [-2.0]], [[1.0], [-1.0]], old_logps=[[-3.0], [-1.0]])
    np.testing.assert_allclose(value("kimi", at, tau=0.3), value("dro", at, beta=0.3), rtol=1e-6)
    np.testing.assert_allclose(gradient("kimi", at, tau=0.3), gradient("dro", at, beta=0.3), rtol=1e-6)
