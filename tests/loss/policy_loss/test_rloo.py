"""Policy loss `rloo`."""

from __future__ import annotations

import numpy as np
from tests.loss.policy_loss.by_hand import fields, gradient, result, value

LOG_RATIOS = np.array([[0.3, -0.2, 9.0], [0.4, 0.3, 9.0], [-0.5, -0.1, 9.0]])
AT = fields(LOG_RATIOS, [[1.0], [1.0], [-1.0]], mask=[[True, True, False]] * 3)
RATIOS = np.exp(LOG_RATIOS[:, :2].sum(1))


def test_the_ratio_is_that_of_the_whole_completion() -> None:
    # the second is clipped from above, the third from below
    per_row = [-RATIOS[0], -1.2, 0.8]
    np.testing.assert_allclose(value("rloo", AT), np.array(per_row)[:, None] * [1, 1, 0], rtol=1e-6)
    np.testing.assert_allclose(result("rloo", AT)[1]["clip_fraction"], [[0, 0, 0], [1, 1, 0], [1, 1, 0]])


def test_each_tokens_gradient_is_that_of_every_term_of_its_completion() -> None:
    # two terms, each -A·r, whose derivative by either token is -A·r
    expected = np.array([-2 * RATIOS[0], 0.0, 0.0])[:, None] * [1, 1, 0]
    np.testing.assert_allclose(gradient("rloo", AT), expected, rtol=1e-6)
