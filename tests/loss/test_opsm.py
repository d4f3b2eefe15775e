"""Policy loss `opsm`."""

from __future__ import annotations

import numpy as np
from tests.loss.by_hand import fields, gradient, result, value

# mean of log μ - log π: 0.6, 0.6, 0.4
LOGPS = [[-1.0, -1.2, 9.0], [-1.0, -1.2, 9.0], [-1.0, -0.8, 9.0]]
AT = fields(
    LOGPS,
    [[-1.0], [1.0], [-1.0]],
    old_logps=LOGPS,
    rollout_logps=-0.5,
    mask=[[True, True, False]] * 3,
)


def test_it_drops_failures_that_the_policy_has_left_behind() -> None:
    kept = np.array([[0, 0, 0], [1, 1, 0], [1, 1, 0]])
    np.testing.assert_array_equal(gradient("opsm", AT) != 0, kept)
    np.testing.assert_allclose(value("opsm", AT), value("ppo", AT) * kept)
    np.testing.assert_array_equal(result("opsm", AT)[1]["dropped_fraction"], [[1, 1, 0], [0, 0, 0], [0, 0, 0]])


def test_a_policy_that_likes_a_failure_better_than_the_sampler_keeps_it() -> None:
    at = AT | {"rollout_logps": AT["rollout_logps"] - 5.0}
    np.testing.assert_array_equal(value("opsm", at), value("ppo", at))
