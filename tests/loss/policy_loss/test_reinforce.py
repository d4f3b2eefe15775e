"""Policy loss `reinforce`."""

from __future__ import annotations

import numpy as np
import pytest
from tests.loss.policy_loss.by_hand import fields, gradient, value

AT = fields([[-0.5, -2.0, -1.0]], [[2.0, -1.0, 3.0]], mask=[[True, True, False]])


def test_by_hand() -> None:
    np.testing.assert_allclose(value("reinforce", AT), [[1.0, -2.0, 0.0]])
    np.testing.assert_allclose(gradient("reinforce", AT), [[-2.0, 1.0, 0.0]])


@pytest.mark.parametrize(
    "name", ["ppo", "gspo", "cispo", "sapo", "gmpo", "vespo", "topr", "importance_sampling", "rollout_is"]
)
def test_on_policy_it_is_the_gradient_of_the_others(name: str) -> None:
    logps = [[-0.5, -2.0], [-1.0, -0.1]]
    at = fields(logps, [[2.0, 2.0], [-1.0, -1.0]], old_logps=logps)
    np.testing.assert_allclose(gradient(name, at), gradient("reinforce", at), rtol=1e-6)
