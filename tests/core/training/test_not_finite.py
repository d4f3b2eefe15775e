"""What is not finite in the first update is looked for where it can be: in the batch, or in a term of the loss."""

import re

import jax.numpy as jnp
import numpy as np
import pytest

import dovetail
from dovetail.config import load
from dovetail.step.algorithm import assemble
from dovetail.training.not_finite import cure

ROWS, TOKENS = 16, 3


def diverging(logps, mask):
    """A term of the loss."""
    return jnp.where(mask, jnp.log(-logps * 0), 0.0)


@pytest.fixture(autouse=True)
def registered():
    dovetail.register("loss_term", "diverging", diverging)


def algorithm(*overrides):
    sizes = ("train.prompts=4", "train.group_size=4", "train.mini_batch_size=None", "train.loss_terms=['diverging']")
    return assemble(load(None, [*sizes, *overrides]))


def batch(**fields):
    mask = np.ones((ROWS, TOKENS), bool)
    mask[0, 1:], mask[1] = False, False
    return {"mask": mask, "scores": np.ones(ROWS, np.float32), "tokens": np.ones((ROWS, TOKENS), np.int32)} | fields


def test_the_term_whose_mean_is_not_finite_is_pointed_to():
    metrics = {"policy_loss/loss": np.nan, "loss_term/diverging/mean": np.nan}
    said = cure(algorithm(), "policy_loss/loss", metrics, batch())
    assert re.fullmatch(
        r"No update came before it, so the learning rate is not the cause: look at loss_term\.diverging of session 0"
        r" \(\S+\) \[.*test_not_finite\.py:\d+\]",
        said,
    )


def test_all_terms_are_pointed_to_if_none_of_them_shows_it():
    said = cure(algorithm("train.policy_loss=gspo"), "optimizer/grad_norm", {"loss_term/diverging/mean": 1.0}, batch())
    assert re.search(r"look at loss_term\.diverging of session .* and policy_loss\.gspo of dovetail", said)


def test_what_the_batch_brings_is_pointed_to_but_not_what_is_masked():
    advantages = np.zeros((ROWS, TOKENS), np.float32)
    advantages[0, 1], advantages[1] = np.nan, np.inf
    scores = np.ones(ROWS, np.float32)
    scores[1] = np.nan
    assert "look at" in cure(algorithm(), "policy_loss/loss", {}, batch(advantages=advantages, scores=scores))
    advantages[2, 2] = np.nan
    said = cure(algorithm(), "policy_loss/loss", {}, batch(advantages=advantages, scores=scores))
    assert re.search(
        r"the batch has values that are not finite already, in 'advantages' \(of advantage\.grpo of dovetail .*"
        r" \[.*grpo\.py:\d+\]\)$",
        said,
    )


@pytest.mark.parametrize("several", ["train.epochs=2", "train.mini_batch_size=8"])
def test_in_a_step_of_several_updates_it_may_be_the_learning_rate(several):
    assert cure(algorithm(several), "policy_loss/loss", {}, batch()).startswith("A lower learning rate")
