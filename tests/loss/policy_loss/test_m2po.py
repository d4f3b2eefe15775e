"""Policy loss `m2po`, which learns from selected tokens; see field/test_selections.py."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from tests.loss.policy_loss.by_hand import fields, gradient, result, value

SELECTED = jnp.array([[True, False, True, True]])
MASK = np.array([[True, True, True, False]])
AT = fields(np.log([[1.1, 1.1, 1.5, 1.1]]), 1.0, mask=MASK, rollout_logps=[[0.1, 0.0, 0.2, 0.0]])
AT |= {"second_moment_tokens": SELECTED}


def test_on_the_selected_tokens_it_is_importance_sampling_and_elsewhere_zero() -> None:
    at = AT | {"old_logps": AT["rollout_logps"]}
    expected = SELECTED & MASK
    np.testing.assert_array_equal(value("m2po", AT), np.where(expected, value("importance_sampling", at), 0.0))
    np.testing.assert_array_equal(gradient("m2po", AT), np.where(expected, gradient("importance_sampling", at), 0.0))


def test_metrics_count_policy_tokens() -> None:
    np.testing.assert_array_equal(result("m2po", AT)[1]["clip_fraction"], [[0, 1, 0, 0]])
