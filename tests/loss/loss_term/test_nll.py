"""Loss term `nll`."""

from __future__ import annotations

import attrs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.core.training.tiny import TINY

import dovetail
from dovetail.config import load
from dovetail.errors import DataError
from dovetail.training.loop import train
from dovetail_loss.loss_agg.sequence_mean_token_sum import sequence_mean_token_sum
from dovetail_loss.loss_term.nll import nll

LOGPS = jnp.log(jnp.array([[0.5, 0.25, 0.1], [0.8, 0.9, 0.9]]))
MASK = jnp.array([[True, True, False], [True, False, False]])


def test_by_hand() -> None:
    np.testing.assert_allclose(nll(LOGPS, MASK), [[np.log(2), np.log(4), 0], [-np.log(0.8), 0, 0]], rtol=1e-6)
    np.testing.assert_array_equal(jax.grad(lambda x: nll(x, MASK).sum())(LOGPS), [[-1, -1, 0], [-1, 0, 0]])


def test_its_sum_over_tokens_is_the_likelihood_of_a_demonstration() -> None:
    found = jnp.sum(sequence_mean_token_sum(MASK) * nll(LOGPS, MASK))
    np.testing.assert_allclose(found, -(np.log(0.5 * 0.25) + np.log(0.8)) / 2, rtol=1e-6)


@attrs.frozen(kw_only=True)
class Sums:
    """A task whose examples have no completion."""

    columns = ("answer",)

    def examples(self, split):
        return [{"prompt": f"{i}+1=", "answer": str(i + 1)} for i in range(9)]

    def corpus(self):
        return [f"{i}+1={i + 1}" for i in range(9)]


def test_a_task_without_demonstrations_is_refused_before_anything_is_trained(tmp_path) -> None:
    dovetail.register("task", "sums", Sums)
    config = load(None, [*TINY, "train.task=sums", "sft.steps=0", "train.loss_terms=['nll']"])
    with pytest.raises(
        DataError,
        match=r"^task\.sums of .* has no demonstrations .*; train.loss_terms = nll reads them, take .* \[.*test_nll.py:\d+\]$",
    ):
        train(config, tmp_path / "run")


def test_it_is_about_the_demonstrations() -> None:
    assert dovetail.get("loss_term", "nll").reads == ("demo_logps", "demo_mask")
