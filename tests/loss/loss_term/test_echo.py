"""Loss term `echo`."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dovetail
from dovetail.config import load
from dovetail.errors import PlanError
from dovetail_loss.loss_term.echo import echo

LOGPS = jnp.log(jnp.array([[0.5, 0.25, 0.1], [0.8, 0.9, 0.9]]))
OBSERVED = jnp.array([[False, True, False], [False, False, False]])


def test_by_hand() -> None:
    np.testing.assert_allclose(echo(LOGPS, OBSERVED), [[0, np.log(4), 0], [0, 0, 0]], rtol=1e-6)
    np.testing.assert_array_equal(jax.grad(lambda x: echo(x, OBSERVED).sum())(LOGPS), [[0, -1, 0], [0, 0, 0]])


def test_it_is_about_the_observations() -> None:
    assert dovetail.get("loss_term", "echo").reads == ("logps", "observed")
    calls = load(None, ["train.loss_terms=['echo']", "train.agent_loop=tool_agent"]).plan.at("loss_terms")
    (call,) = (call for call in calls if call.component.name == "echo")
    assert (call.about, call.inputs) == ("observed", "completions")


def test_a_run_without_turns_has_none() -> None:
    with pytest.raises(PlanError, match=r"train.loss_terms = echo reads 'observed', which an agent loop with turns"):
        load(None, ["train.loss_terms=['echo']"])
