"""Policy losses `top_entropy` and `m2po`, which learn from selected tokens; see field/test_selections.py."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from tests.loss.by_hand import fields, gradient, result, value

SELECTED = jnp.array([[True, False, True, True]])
MASK = np.array([[True, True, True, False]])
AT = fields(np.log([[1.1, 1.1, 1.5, 1.1]]), 1.0, mask=MASK, rollout_logps=[[0.1, 0.0, 0.2, 0.0]])
AT |= {"top_entropy_tokens": SELECTED, "second_moment_tokens": SELECTED}
SAME = {"top_entropy": "ppo", "m2po": "importance_sampling"}


@pytest.mark.parametrize("name", SAME)
def test_on_the_selected_tokens_it_is_another_loss_and_elsewhere_zero(name: str) -> None:
    at = AT | ({"old_logps": AT["rollout_logps"]} if name == "m2po" else {})
    params = {"epsilon_high": 0.28} if name == "top_entropy" else {}
    expected = SELECTED & MASK
    np.testing.assert_array_equal(value(name, AT), np.where(expected, value(SAME[name], at, **params), 0.0))
    np.testing.assert_array_equal(gradient(name, AT), np.where(expected, gradient(SAME[name], at, **params), 0.0))


def test_metrics_count_policy_tokens() -> None:
    np.testing.assert_array_equal(result("top_entropy", AT)[1]["selected_fraction"], [[1, 0, 1, 0]])
    np.testing.assert_array_equal(result("m2po", AT)[1]["clip_fraction"], [[0, 1, 0, 0]])
