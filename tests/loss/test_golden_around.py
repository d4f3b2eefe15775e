"""Computations around the losses of verl, TRL and tunix: entropy, log-probabilities, importance weights, token rewards."""

from __future__ import annotations

from typing import Any

import attrs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.golden import Fact, load
from tests.loss.cases import TOLERANCE, compute, precision
from tests.loss.correction.run import correct
from tests.loss.test_golden_verl_policy import COMPONENTS, RANDOM, policy_case
from tests.loss.verl import ARRAYS, CASES, DTYPES, aggregation, cases, inputs
from tests.sampled import sampled

import dovetail
from dovetail.field import entropy as entropies
from dovetail.field import logps as log_probabilities

TRL, TRL_ARRAYS = load("trl")
TUNIX, TUNIX_ARRAYS = load("tunix")

BOUNDED_BELOW = {
    "isr/sequence_truncate/0.5_1.5": "TRL also bounds the ratio from below, which makes unlikely tokens more likely",
}
CHARACTERS = "tunix counts characters, and its penalty has no floor; here tokens count, and the floor is -c"


SCORING = [c for c in TRL if c["name"].startswith("isr/")]
TRUNCATED = "adv/mask_truncated"
QUANTITIES = {"util/selective_log_softmax": log_probabilities.logps, "util/entropy_from_logits": entropies.entropy}
OVERLONG = "reward/dapo_overlong"
KINDS = {"entropy_loss", "microbatch_invariance", "kl_in_reward", "overlong"}
UTILITIES = {"logprobs_from_logits_v2", "compute_rewards"}


def facts() -> list[Fact]:
    """Return the cases of this file."""
    found = [
        Fact("verl", f"{c['kind']}, {c['function']}", c["id"], "")
        for c in CASES
        if c["kind"] in KINDS or c["function"] in UTILITIES
    ]
    found += [Fact("trl", "weights of the sampler", c["name"], BOUNDED_BELOW.get(c["name"], "")) for c in SCORING]
    found += [Fact("trl", "masked completions", TRUNCATED)]
    named = {c["name"]: c["function"] for c in TUNIX}
    found += [Fact("tunix", named[name], name) for name in QUANTITIES]
    return [*found, Fact("tunix", named[OVERLONG], OVERLONG, CHARACTERS)]


def close(actual: Any, expected: Any, dtype: str) -> None:
    np.testing.assert_allclose(actual, expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


# --- entropy and log-probabilities from logits


@pytest.mark.parametrize("case", sampled(cases("entropy_loss"), every=6))
def test_entropy(case: dict[str, Any]) -> None:
    dtype, found = DTYPES[case["dtype"]], inputs(case, logits="logits", mask="response_mask")
    weighting = aggregation(case["config"]["loss_agg_mode"], found["mask"], {})
    with precision(dtype):
        mask = jnp.asarray(found["mask"])
        weigh = dovetail.get("loss_agg", weighting["loss_agg"]).bind(**weighting["loss_agg_params"])
        lengths = found["mask"].sum(-1, keepdims=True)
        shrink = lengths / np.maximum(lengths + weighting["length_epsilon"], 1e-30)
        weights = np.asarray(weigh(mask)) * shrink

        def loss(logits: jax.Array) -> tuple[jax.Array, jax.Array]:
            entropy = entropies.entropy(logits)
            return jnp.sum(jnp.asarray(weights, entropy.dtype) * jnp.where(mask, entropy, 0)), entropy

        (value, entropy), gradient = jax.value_and_grad(loss, has_aux=True)(jnp.asarray(found["logits"]))
        close(entropy, ARRAYS[case["outputs"]["token_entropy"]], dtype)
        close(value, ARRAYS[case["outputs"]["entropy_loss"]], dtype)
        close(gradient, ARRAYS[case["outputs"]["grad_logits"]], dtype)


@pytest.mark.parametrize("case", cases("util", "logprobs_from_logits_v2"))
def test_log_probabilities(case: dict[str, Any]) -> None:
    dtype, found = DTYPES[case["dtype"]], inputs(case, logits="logits", tokens="labels")
    with precision(dtype):
        logps = log_probabilities.logps(jnp.asarray(found["logits"]), jnp.asarray(found["tokens"]))
        close(logps, ARRAYS[case["outputs"]["logprobs"]], dtype)


@pytest.mark.parametrize("name", QUANTITIES)
def test_quantities_of_tunix(name: str) -> None:
    (case,) = (c for c in TUNIX if c["name"] == name)
    arguments = [jnp.asarray(TUNIX_ARRAYS[key]) for key in case["inputs"].values()]
    close(QUANTITIES[name](*arguments), TUNIX_ARRAYS[case["outputs"]["out"]], "float32")


# --- one mini-batch in two pieces


INVARIANCE = [c for c in cases("microbatch_invariance", *COMPONENTS) if c.id not in RANDOM]


@pytest.mark.parametrize("case", sampled(INVARIANCE, every=6))
def test_two_micro_batches_are_the_whole(case: dict[str, Any]) -> None:
    """The pieces of a batch give the result that verl computes on the whole batch."""
    outputs = case["outputs"] | {"loss": case["outputs"]["loss_full"], "grad_log_prob": case["outputs"]["loss_full"]}
    whole = policy_case(case | {"outputs": outputs})
    first, _ = case["config"]["split_rows"]
    pieces = [compute(attrs.evolve(whole, rows=rows))[0] for rows in ((0, first), (first, 16))]
    tolerance = whole.tolerance or TOLERANCE[whole.dtype]
    np.testing.assert_allclose(sum(pieces), whole.value, rtol=tolerance, atol=tolerance)


# --- weights of the sampler, and truncated completions


def as_sampled(case: dict[str, Any]) -> dict[str, np.ndarray]:
    lengths = np.array(case["completion_lengths"])
    return {
        "old_logps": TRL_ARRAYS["scoring/old_logps"].astype(np.float64),
        "rollout_logps": TRL_ARRAYS["scoring/sampling_logps"].astype(np.float64),
        "mask": np.arange(lengths.max()) < lengths[:, None],
    }


def weights_of_the_sampler(case: dict[str, Any]) -> np.ndarray:
    config = case["config"]
    upper, lower = config["vllm_importance_sampling_clip_max"], config.get("vllm_importance_sampling_clip_min")
    name, params = {
        "token_truncate": ("tis_token", {}),
        "sequence_truncate": ("tis_sequence", {}),
        "token_mask": ("icepop", {"lower": lower}),
        "sequence_mask": ("sequence_mask", {"lower": lower, "count_rejected": True}),
    }[config["vllm_importance_sampling_mode"]]
    with precision("float64"):
        return np.asarray(correct(name, as_sampled(case), upper=upper, **params)[0])


@pytest.mark.parametrize("case", [pytest.param(c, id=c["name"]) for c in SCORING])
def test_weights_of_the_sampler(case: dict[str, Any]) -> None:
    mask, expected = as_sampled(case)["mask"], TRL_ARRAYS[f"{case['name']}/importance_sampling_ratio"]
    expected = np.where(mask, np.broadcast_to(expected, mask.shape), 0.0)
    weights = weights_of_the_sampler(case)
    if case["name"] in BOUNDED_BELOW:
        lower = case["config"]["vllm_importance_sampling_clip_min"]
        assert (weights[mask] < lower).any()
        expected, weights = (np.where(mask, np.maximum(each, lower), 0.0) for each in (expected, weights))
    close(weights, expected, "float32")  # TRL computes them in float32


def test_truncated_completions_are_masked_and_counted() -> None:
    (case,) = (c for c in TRL if c["name"] == TRUNCATED)
    kept = TRL_ARRAYS["adv/mask_truncated/completion_mask"].astype(bool)
    mask = as_sampled(case)["mask"]
    truncated = ~kept.any(axis=1)
    select = dovetail.get("loss_mask", "mask_truncated_completions").load()
    np.testing.assert_array_equal(select(jnp.asarray(truncated), jnp.asarray(mask))[1], kept)
    table = TRL_ARRAYS[case["rewards"]]
    judged = mask & ~np.isnan(table).all(axis=1)[:, None]
    fields = {
        "scores": np.nansum(table, axis=1).astype(np.float32),
        "group_ids": np.arange(16) // case["num_generations"],
        "mask": judged,
    }
    advantages = dovetail.get("advantage", "grpo").bind(epsilon=1e-4)(*map(jnp.asarray, fields.values()))
    close(np.asarray(advantages)[:, 0], TRL_ARRAYS["adv/mask_truncated/advantages"], "float32")


# --- rewards per token


@pytest.mark.parametrize("case", [*cases("kl_in_reward"), *cases("util", "compute_rewards")])
def test_divergence_in_the_reward(case: dict[str, Any]) -> None:
    config, dtype = case["config"], DTYPES[case["dtype"]]
    found = inputs(
        case,
        rewards="token_level_rewards",
        scores="token_level_scores",
        logps="old_log_prob",
        ref_logps="ref_log_prob",
        mask="response_mask",
    )
    with precision(dtype):
        estimate = dovetail.get("kl", config.get("kl_penalty", "k1"))
        divergence = np.asarray(estimate(jnp.asarray(found["logps"]), jnp.asarray(found["ref_logps"])))
        mask = found.get("mask", np.ones(divergence.shape, bool))
        coef = config.get("kl_coef", config.get("kl_ratio"))
        rewards = found.get("rewards", found.get("scores")) - coef * np.where(mask, divergence, 0.0)
        close(rewards, ARRAYS[next(iter(case["outputs"].values()))], dtype)
        if "new_coef" in case["outputs"]:
            controller: Any = dovetail.get("kl_controller", "adaptive").bind(
                target=config["target_kl"], horizon=float(config["horizon"])
            )
            observed = np.where(mask, divergence, 0).sum(1) / mask.sum(1)
            close(observed.mean(), case["metrics"]["actor/reward_kl_penalty"], "float32")
            state = controller.update(controller.init(coef), jnp.asarray(observed.mean()), jnp.asarray(len(mask)))
            close(controller.coef(state), ARRAYS[case["outputs"]["new_coef"]], "float32")


def overlong(lengths: np.ndarray, **params: Any) -> np.ndarray:
    width = int(lengths.max())
    mask = jnp.asarray(np.arange(width) < lengths[:, None])
    shape = dovetail.get("reward_shaping", "overlong").bind(**params)
    return np.asarray(shape(jnp.zeros(mask.shape), jnp.asarray(lengths), mask)[1]["penalty"])


@pytest.mark.parametrize("case", cases("overlong"))
def test_overlong(case: dict[str, Any]) -> None:
    config = case["config"]
    penalties = overlong(
        np.arange(1, config["max_resp_len"] + 1),
        max_tokens=config["max_resp_len"],
        buffer=config["overlong_buffer.len"],
        penalty=config["penalty_factor"],
    )
    expected = ARRAYS[case["outputs"]["reward_by_len_1_to_max"]]
    close(config["base_score"] + penalties, expected, "float32")


def test_overlong_departs_from_tunix_beyond_the_limit() -> None:
    (case,) = (c for c in TUNIX if c["name"] == OVERLONG)
    config, lengths = case["config"], TUNIX_ARRAYS[case["inputs"]["completion_character_lengths"]]
    expected = TUNIX_ARRAYS[case["outputs"]["out"]]
    penalties = overlong(
        lengths,
        max_tokens=config["max_response_length"],
        buffer=config["overlong_buffer_length"],
        penalty=config["overlong_buffer_penalty"],
    )
    within = lengths <= config["max_response_length"]
    close(penalties[within], expected[within], "float32")
    assert (penalties[~within] == -1).all()
    assert (expected[~within] < -1).all()


def test_every_case_of_these_kinds_is_here() -> None:
    run = [*cases("entropy_loss"), *INVARIANCE, *cases("kl_in_reward"), *cases("overlong")]
    assert {parameter.id for parameter in run} == {c["id"] for c in CASES if c["kind"] in KINDS}
