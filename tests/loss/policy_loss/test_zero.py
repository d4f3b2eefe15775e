"""Policy loss `zero`: it does not cause any computation."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from dovetail.config import load
from dovetail.plan import plan_step
from dovetail_loss.policy_loss.zero import zero

ALONE = ("train.policy_loss=zero", "train.monitor=()")
DPO = ("train.loss_terms=['dpo']", "train.loss_agg=sequence_mean_token_mean")


def test_by_hand() -> None:
    np.testing.assert_array_equal(zero(jnp.array([[True, False]])), [[0.0, 0.0]])


def test_without_another_term_there_is_no_forward_pass() -> None:
    assert plan_step(load(None, ALONE)).passes == ()


def test_with_preferences_alone_there_are_the_passes_of_dpo_and_no_other() -> None:
    plan = plan_step(load(None, [*ALONE, *DPO]))
    assert [str(each) for each in plan.passes] == [
        "policy being trained on completions: logps",
        "reference on completions: logps",
    ]
    assert "advantages" not in plan
    assert plan.roles == ("reference",)


def test_beside_another_policy_loss_the_advantages_are_read() -> None:
    assert "advantages" in plan_step(load(None, ["train.monitor=()", *DPO]))
