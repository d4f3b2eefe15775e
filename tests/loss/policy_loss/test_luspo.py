"""Policy loss `luspo`."""

from __future__ import annotations

import numpy as np
from tests.loss.policy_loss.by_hand import fields, value

import dovetail

MASK = np.array([[True, True, True], [True, False, False]])
AT = fields([[0.001, 0.0, 0.002], [0.001, 9.0, 9.0]], [[1.0], [-1.0]], mask=MASK)


def test_it_has_the_interface_of_gspo() -> None:
    ours, theirs = dovetail.get("policy_loss", "luspo"), dovetail.get("policy_loss", "gspo")
    assert ours.reads == theirs.reads
    assert set(ours.params) == set(theirs.params)


def test_summed_over_tokens_a_completion_weighs_by_its_length() -> None:
    weights = dovetail.get("loss_agg", "sequence_mean_token_sum")(AT["mask"])
    loss = np.sum(weights * value("luspo", AT))
    np.testing.assert_allclose(loss, (-3 * np.exp(0.001) + 1 * np.exp(0.001)) / 2, rtol=1e-6)
