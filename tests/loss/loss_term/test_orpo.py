"""Loss term `orpo`: the loss and its metrics by hand, certain completions, and the figures of tunix."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from tests.golden import Fact, load
from tests.loss.loss_term.test_dpo import softplus

from dovetail.field import logps as log_probabilities
from dovetail_loss.loss_agg.sequence_mean_token_mean import sequence_mean_token_mean
from dovetail_loss.loss_term.orpo import orpo

CASES, ARRAYS = load("tunix")
(CASE,) = (case for case in CASES if case["function"] == "tunix.sft.dpo.dpo_trainer.dpo_loss_fn")

LOGPS = jnp.log(jnp.array([[0.5, 0.3, 9.0], [0.2, 9.0, 9.0], [0.4, 9.0, 9.0], [0.9, 0.8, 0.6]]))
MASK = jnp.array([[1, 1, 0], [1, 0, 0], [1, 0, 0], [1, 1, 1]], bool)
GROUPS, SCORES = jnp.array([4, -1, 4, -1]), jnp.array([1.0, 0.0, 0.0, 2.0])
NLL = -np.array([np.log(0.5 * 0.3) / 2, np.log(0.2), np.log(0.4), np.log(0.9 * 0.8 * 0.6) / 3])


def facts() -> list[Fact]:
    """Return the cases of this file."""
    said = (
        "tunix takes the odds of a whole completion; here, as in the paper and in TRL, they are those of its mean token"
    )
    return [Fact("tunix", CASE["function"], CASE["name"], said)]


def mean(logps: Any = LOGPS, groups: Any = GROUPS, mask: Any = MASK, **params: Any) -> tuple[jax.Array, Any]:
    loss, metrics = orpo(logps, SCORES, groups, mask, **params)
    return jnp.sum(sequence_mean_token_mean(mask) * loss), metrics


def log_odds(nll: Any) -> Any:
    return -nll - np.log(1 - np.exp(-nll))


def test_by_hand() -> None:
    winners, losers = NLL[[0, 3]], NLL[[2, 1]]
    ratios = log_odds(winners) - log_odds(losers)
    loss, metrics = mean(ratio_coef=0.3)
    np.testing.assert_allclose(loss, (winners + 0.3 * softplus(-ratios)).mean(), rtol=1e-6)
    np.testing.assert_allclose(metrics["nll"], winners[[0, 1, 0, 1]], rtol=1e-6)
    np.testing.assert_allclose(metrics["log_odds_ratio"], ratios[[0, 1, 0, 1]], rtol=1e-5)
    np.testing.assert_array_equal(metrics["accuracy"], [0, 1, 0, 1])


def test_without_the_ratio_it_is_the_likelihood_of_the_preferred() -> None:
    gradient = jax.grad(lambda x: mean(x, ratio_coef=0.0)[0])(LOGPS)
    np.testing.assert_allclose(gradient[0, :2], [-0.25, -0.25], rtol=1e-6)
    np.testing.assert_allclose(gradient[3], [-1 / 6] * 3, rtol=1e-6)
    np.testing.assert_array_equal(gradient[1:3], jnp.zeros((2, 3)))


def test_several_pairs_of_a_prompt_give_their_mean() -> None:
    """Scores 1, 0, 0, 2 of one prompt: five pairs, three of which the last completion wins and two the first."""
    pairs = [(0, 1), (0, 2), (3, 0), (3, 1), (3, 2)]
    odds = log_odds(NLL)
    expected = np.mean([NLL[best] + 0.3 * softplus(-(odds[best] - odds[worst])) for best, worst in pairs])
    np.testing.assert_allclose(mean(groups=jnp.zeros(4, jnp.int32), ratio_coef=0.3)[0], expected, rtol=1e-6)


def test_a_completion_that_is_certain_has_finite_odds_and_gradients() -> None:
    value, gradient = jax.value_and_grad(lambda x: mean(x, ratio_coef=1.0)[0])(jnp.zeros_like(LOGPS))
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()


def test_the_figures_of_tunix() -> None:
    """Its likelihood is ours; its odds are ours for completions of one token with the same log-probability."""
    logits, ids, mask = (ARRAYS[CASE["inputs"][name]] for name in ("logits", "input_ids", "completion_mask"))
    width = mask.shape[1]
    logps, mask = log_probabilities.logps(jnp.asarray(logits)[:, -width - 1 : -1], ids[:, -width:]), mask.astype(bool)
    scores, groups = jnp.array([1.0, 1.0, 0.0, 0.0]), jnp.array([0, 1, 0, 1])
    _, metrics = orpo(logps, scores, groups, mask)
    whole = jnp.sum(jnp.where(mask, logps, 0.0), axis=1, keepdims=True)
    ratios, of_whole = orpo(whole, scores, groups, jnp.ones((4, 1), bool), ratio_coef=1.0)
    outputs = {name: ARRAYS[array] for name, array in CASE["outputs"].items()}
    np.testing.assert_allclose(np.mean(metrics["nll"]), outputs["aux:sft_loss"], rtol=1e-5)
    np.testing.assert_allclose(np.mean(ratios) - np.mean(of_whole["nll"]), outputs["aux:or_loss"], rtol=1e-4)
    np.testing.assert_allclose(np.mean(np.exp(of_whole["log_odds_ratio"])), outputs["aux:odds_ratio"], rtol=1e-4)
