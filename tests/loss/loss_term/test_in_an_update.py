"""Loss terms in an update of a tiny model: whatever the split, with the field's own numbers, on the tokens they are about."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.core.step.test_update import (
    PLAIN,
    VOCAB,
    change,
    collect,
    evaluate,
    fields,
    in_micro_batches,
    make,
    sampled,
)

from dovetail.config import load
from dovetail.errors import ConfigError
from dovetail.protocols import Weights
from dovetail.step.algorithm import assemble
from dovetail.step.parts import masked_sum
from dovetail.training.metrics import means
from dovetail_loss.loss_agg.token_mean import token_mean

ALONE = (*PLAIN, "train.policy_loss=zero", "train.monitor=()")
TEACHER = "roles.teacher=frozen"
"""In these tests the teacher's weights differ from the policy's by a hundredth."""
TERMS = {
    "gkd": ("train.loss_terms=['gkd']", TEACHER, "loss_term.gkd.coef=100.0"),
    "reverse_kl": ("train.loss_terms=['reverse_kl']", TEACHER),
    "echo": ("train.loss_terms=['echo']", "train.agent_loop=tool_agent"),
    "nll": ("train.loss_terms=['nll']", "train.loss_agg=sequence_mean_token_sum"),
    "dpo": ("train.loss_terms=['dpo']", "train.loss_agg=sequence_mean_token_mean"),
}
OUT = 3
SIZES = {"dpo": (4, 8)}
"""The micro-batch sizes that a term allows, if it does not allow all."""


def batch():
    """Return completions with observations, and a demonstration for each prompt, which counts in its first row."""
    rng = np.random.default_rng(5)
    found = sampled()
    rows, tokens = found["tokens"].shape
    demonstrations = {
        "demo_prompt_tokens": rng.integers(0, VOCAB, (3, 2)).astype(np.int32),
        "demo_prompt_mask": np.array([[True, True], [False, True], [True, True]]),
        "demo_tokens": rng.integers(0, VOCAB, (3, tokens)).astype(np.int32),
        "demo_mask": np.arange(tokens) < np.array([[5], [2], [3]]),
    }
    repeated = {name: np.repeat(array, 4, axis=0) for name, array in demonstrations.items()}
    repeated["demo_mask"] &= (np.arange(rows) % 4 == 0)[:, None]
    # an observation after the policy's tokens; one of the episodes does not count anywhere
    written = np.asarray(found["mask"])
    observed = np.roll(written, 1, axis=1) & ~written
    return found | jax.tree.map(
        jnp.asarray,
        repeated | {"observed": observed, "mask": written & (np.arange(rows) != OUT)[:, None]} | _turns(rows, tokens),
    )


def _turns(rows, tokens):
    """Return the other fields of an episode of one turn."""
    return {
        "turns": np.zeros((rows, tokens), np.int32),
        "turn_rewards": np.zeros((rows, 1), np.float32),
        "turn_mask": np.ones((rows, 1), bool),
    }


def moved(*overrides):
    (found,) = moves(*overrides, sizes=(12,))
    return found


def moves(*overrides, sizes):
    """Return the change and the metrics for each micro-batch size, from one collection."""
    algorithm, graphdef, weights = make(*ALONE, *overrides)
    given, _ = collect(algorithm, graphdef, weights, batch())
    return [change(in_micro_batches(algorithm, size), graphdef, weights, given) for size in sizes]


def length(delta) -> float:
    return float(np.sqrt(sum(np.sum(np.square(leaf)) for leaf in jax.tree.leaves(delta))))


@pytest.mark.slow
@pytest.mark.parametrize("name", TERMS)
def test_the_gradient_and_the_metrics_do_not_depend_on_the_micro_batch(name):
    (whole, measured), *splits = moves(*TERMS[name], sizes=(12, *SIZES.get(name, (1, 4, 5))))
    expected = means(measured)
    assert length(whole) > 1e-3
    assert f"loss_term/{name}/mean" in expected
    for split, found in splits:
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), whole, split)
        for metric, value in means(found).items():
            if metric == "lengths/fill":  # a ragged last micro-batch has empty rows
                continue
            np.testing.assert_allclose(value, expected[metric], rtol=1e-4, atol=1e-6, err_msg=metric)


@pytest.mark.slow
def test_the_divergence_has_the_beta_that_is_configured():
    found = {beta: moved(*TERMS["gkd"], f"field.jensen_shannon.beta={beta}") for beta in (0.0, 0.5, 1.0)}
    values = {beta: means(metrics)["loss_term/gkd/mean"] for beta, (_, metrics) in found.items()}
    assert values[0.0] != pytest.approx(values[1.0], rel=1e-4), "forward and reverse"
    assert values[0.5] < 0.5 * min(values[0.0], values[1.0])
    steps = {beta: length(delta) for beta, (delta, _) in found.items()}
    assert steps[0.5] < 0.5 * min(steps[0.0], steps[1.0])


def test_the_coefficient_scales_a_term():
    once, _ = moved(*TERMS["nll"])
    thrice, _ = moved(*TERMS["nll"], "loss_term.nll.coef=3.0")
    jax.tree.map(lambda a, b: np.testing.assert_allclose(3 * a, b, rtol=1e-4, atol=1e-6), once, thrice)


@pytest.mark.parametrize("size", ["train.micro_batch_size=6", "train.mini_batch_size=6"])
def test_batches_that_cut_groups_are_refused(size):
    with pytest.raises(ConfigError, match=r"train.loss_terms = dpo compares the completions of a group, and .* cuts"):
        assemble(load(None, ["train.prompts=3", "train.group_size=4", *TERMS["dpo"], size]))


def test_likelihood_is_that_of_supervised_training_on_the_same_demonstrations():
    """With the mean over tokens, the loss and its gradient are those of the warm start."""
    algorithm, graphdef, weights = make(*ALONE, "train.loss_terms=['nll']", "train.loss_agg=token_mean")
    given = batch()
    rows = {name: given[f"demo_{name}"][::4] for name in ("prompt_tokens", "prompt_mask", "tokens", "mask")}

    def loss(trained):
        logps = evaluate(graphdef, Weights(trained, weights.frozen), rows, fields("logps"), 1.0)["logps"]
        return masked_sum(token_mean(rows["mask"]), -logps)

    gradient = jax.jit(jax.grad(loss))(weights.trained)
    collected, _ = collect(algorithm, graphdef, weights, given)
    delta, _ = change(algorithm, graphdef, weights, collected)  # at rate 1 the change is the gradient's opposite
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, -b, rtol=1e-4, atol=1e-6), delta, gradient)


def test_what_is_predicted_are_the_observations_of_the_episodes_that_count():
    algorithm, graphdef, weights = make(*ALONE, *TERMS["echo"], "train.loss_agg=token_mean")
    given = batch()
    assert bool(given["observed"][OUT].any())
    observed = given["observed"] & jnp.any(given["mask"], axis=1, keepdims=True)

    def loss(trained):
        logps = evaluate(graphdef, Weights(trained, weights.frozen), given, fields("logps"), 1.0)["logps"]
        return jnp.sum(jnp.where(observed, -logps, 0.0)) / jnp.sum(observed, dtype=jnp.float32)

    value, gradient = jax.jit(jax.value_and_grad(loss))(weights.trained)
    collected, _ = collect(algorithm, graphdef, weights, given)
    delta, measured = change(algorithm, graphdef, weights, collected)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, -b, rtol=1e-4, atol=1e-6), delta, gradient)
    np.testing.assert_allclose(means(measured)["loss_term/echo/mean"], value, rtol=1e-5)


@pytest.mark.slow
def test_preferences_make_the_better_completion_likelier_against_the_worse():
    algorithm, graphdef, weights = make(*ALONE, *TERMS["dpo"], "train.lr=0.1")
    given, _ = collect(algorithm, graphdef, weights, batch())
    delta, _ = change(algorithm, graphdef, weights, given)
    after = weights._replace(trained=jax.tree.map(jnp.add, weights.trained, delta))
    before, now = (
        jnp.sum(jnp.where(given["mask"], evaluate(graphdef, w, given, fields("logps"), 1.0)["logps"], 0.0), axis=-1)
        for w in (weights, after)
    )
    gain, scores = np.asarray(now - before).reshape(3, 4), np.asarray(given["scores"]).reshape(3, 4)
    for gains, group in zip(gain, scores, strict=True):
        assert np.corrcoef(gains, group)[0, 1] > 0
