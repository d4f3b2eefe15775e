"""google-tunix 0.1.7: aggregation, KL, the `grpo`, `gspo-token` and `ppo` policy losses, and the value loss."""

from __future__ import annotations

import functools
from typing import Any

import attrs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.golden import Fact, load
from tests.loss.cases import Case, check, compute

from dovetail.arrays import LOG_RATIO_BOUND
from dovetail.field import entropy as entropies
from dovetail.field import logps as log_probabilities

CASES, ARRAYS = load("tunix")

AGGREGATE = "tunix.rl.common.aggregate_loss"
KL = "tunix.rl.common.compute_kl_divergence"
KL_GRADIENT = "d(sum compute_kl_divergence)/d per_token_logps"
GRPO = "tunix registry policy_loss_fn 'grpo' (tunix.rl.algo_core.grpo_loss_fn)"
PPO = "tunix registry policy_loss_fn 'ppo' (tunix.rl.algo_core.ppo_policy_loss_fn)"
VALUE = "tunix registry value_loss_fn 'ppo' (tunix.rl.algo_core.ppo_value_loss_fn)"

OVERFLOWS = "kl/extreme/low_var_kl/clamp_None"
"""tunix lets e^(-x) overflow; here it continues as a straight line."""

BOUNDED_BEFORE_THE_MEAN = {
    "loss/grpo/b4p3t6v11/row_fully_masked/27_loss_algo-gspo-token_beta-0.04_T1.0_old-far",
    "loss/grpo/b4p3t6v11/holes/27_loss_algo-gspo-token_beta-0.04_T1.0_old-far",
}
"""tunix bounds a token's log-ratio to ±20 before GSPO's mean over tokens; here, as in the paper and in verl, only the mean."""


DEPARTURES = {OVERFLOWS: "tunix lets e^(-x) overflow; here it continues as a straight line"} | dict.fromkeys(
    BOUNDED_BEFORE_THE_MEAN, "tunix bounds a token's log-ratio before GSPO's mean over tokens; here, only the mean is"
)


def facts() -> list[Fact]:
    """Return the cases of this file."""
    functions = (AGGREGATE, KL, KL_GRADIENT, GRPO, PPO, VALUE)
    found = [(c["function"], c["name"]) for c in CASES if c["function"] in functions]
    return [Fact("tunix", function, name, DEPARTURES.get(name, "")) for function, name in found]


def cases(*functions: str) -> list[Any]:
    return [pytest.param(c, id=c["name"]) for c in CASES if c["function"] in functions]


def inputs(case: dict[str, Any], **names: str) -> dict[str, np.ndarray]:
    arrays = {ours: ARRAYS[case["inputs"][theirs]] for ours, theirs in names.items() if theirs in case["inputs"]}
    return {name: value.astype(bool) if name == "mask" else value for name, value in arrays.items()}


def aggregation(mode: str, width: int, norm: float | None) -> dict[str, Any]:
    """Translate tunix's mode.

    Its `sequence-mean-token-scale` takes the padded width where `norm` is missing; its `sequence-mean-token-sum-norm`
    takes the constant in place of the number of completions, and is two of our modes.
    """
    if mode == "sequence-mean-token-scale":
        return {"loss_agg": mode, "loss_agg_params": {"normalizer": float(norm or width)}}
    if mode == "sequence-mean-token-sum-norm":
        if norm is None:
            return {"loss_agg": "sequence_mean_token_sum"}
        return {"loss_agg": "token_sum", "loss_agg_params": {"normalizer": norm}}
    return {"loss_agg": mode}


@pytest.mark.parametrize("case", cases(AGGREGATE))
def test_aggregation(case: dict[str, Any]) -> None:
    fields = inputs(case, loss="per_token_loss", mask="completion_mask")
    config = case["config"]
    weighting = aggregation(config["loss_agg_mode"], fields["mask"].shape[1], config.get("norm"))
    check(
        Case(
            name=case["name"],
            dtype="float32",
            kind="loss_agg",
            component=weighting["loss_agg"],
            fields=fields,
            **weighting,
            value=ARRAYS[case["outputs"]["out"]],
        )
    )


def kl_case(case: dict[str, Any]) -> Case:
    config = case["config"]
    return Case(
        name=case["name"],
        dtype="float32",
        kind="kl",
        component=config["method"],
        params={"clamp": config.get("clamp_value")},
        fields=inputs(case, logps="per_token_logps", ref_logps="ref_per_token_logps"),
        value=ARRAYS[case["outputs"]["out"]],
    )


@pytest.mark.parametrize("case", [c for c in cases(KL) if c.id != OVERFLOWS])
def test_kl(case: dict[str, Any]) -> None:
    check(kl_case(case))


def test_kl_departs_where_tunix_overflows() -> None:
    (raw,) = (c for c in CASES if c["name"] == OVERFLOWS)
    case = kl_case(raw)
    value, _, _ = compute(case)
    far = case.fields["ref_logps"] - case.fields["logps"] > LOG_RATIO_BOUND
    assert np.isinf(case.value).any()
    np.testing.assert_allclose(value[~far], case.value[~far], rtol=1e-5, atol=1e-5)
    beyond = (case.fields["ref_logps"] - case.fields["logps"])[far] - LOG_RATIO_BOUND
    tangent = np.exp(LOG_RATIO_BOUND) - LOG_RATIO_BOUND - 1 + beyond * np.expm1(LOG_RATIO_BOUND)
    np.testing.assert_allclose(value[far], tangent, rtol=1e-5)


@pytest.mark.parametrize("case", cases(KL_GRADIENT))
def test_kl_gradient(case: dict[str, Any]) -> None:
    converted = kl_case(case)
    _, gradient, _ = compute(converted)
    np.testing.assert_allclose(gradient, converted.value, rtol=1e-5, atol=1e-5)


def positions(case: dict[str, Any]) -> slice:
    """Return the positions that predict the completion in a pass over prompt and completion."""
    start = ARRAYS[case["inputs"]["prompt_ids"]].shape[1] - 1
    return slice(start, start + ARRAYS[case["inputs"]["completion_ids"]].shape[1])


Quantities = tuple[jax.Array, jax.Array]


@functools.partial(jax.jit, static_argnames="start")
def forward(logits: jax.Array, tokens: jax.Array, temperature: float, start: int) -> Quantities:
    """Return the log-probabilities and the entropy at the completion's tokens, from tunix's logits."""
    predicted = logits[:, start : start + tokens.shape[1]] / temperature
    return log_probabilities.logps(predicted, tokens), entropies.entropy(predicted)


@functools.partial(jax.jit, static_argnames="start")
def backward(cotangents: Quantities, logits: jax.Array, tokens: jax.Array, temperature: float, start: int) -> jax.Array:
    """Propagate gradients back to the logits."""
    return jax.vjp(lambda x: forward(x, tokens, temperature, start), logits)[1](cotangents)[0]


def forward_arguments(case: dict[str, Any]) -> tuple[jax.Array, jax.Array, float, int]:
    logits, tokens = (jnp.asarray(ARRAYS[case["inputs"][name]]) for name in ("logits", "completion_ids"))
    return logits, tokens, case["config"].get("temperature") or 1.0, positions(case).start


def policy_case(case: dict[str, Any], logps: jax.Array) -> Case:
    config = case["config"]
    fields = {"logps": np.asarray(logps)} | inputs(
        case,
        mask="completion_mask",
        advantages="advantages",
        old_logps="old_per_token_logps",
        ref_logps="ref_per_token_logps",
        is_weights="sampler_is_weights",
    )
    fields.setdefault("old_logps", fields["logps"])
    if fields["advantages"].ndim == 1:
        fields["advantages"] = np.broadcast_to(fields["advantages"][:, None], fields["mask"].shape)
    sequence_level = config.get("loss_algo") == "gspo-token"
    low = config.get("epsilon_low", config.get("epsilon"))
    params = {"epsilon_low": low, "epsilon_high": config["epsilon_high"]}
    kl = (config["kl_loss_mode"], {"clamp": config["kl_clamp_value"]}, config["beta"]) if config.get("beta") else None
    return Case(
        name=case["name"],
        dtype="float32",
        kind="policy_loss",
        component="ppo" if case["function"] == PPO else config["loss_algo"],
        params=params if sequence_level else params | {"clip_c": config["epsilon_c"]},
        fields=fields,
        **aggregation(config.get("loss_agg_mode", "token-mean"), fields["mask"].shape[1], None),
        kl=kl,
        value=ARRAYS[case["outputs"]["loss"]],
    )


def check_policy_case(case: dict[str, Any], **changes: np.ndarray) -> None:
    arguments = forward_arguments(case)
    logps, entropy = forward(*arguments)
    converted = policy_case(case, logps)
    converted = attrs.evolve(converted, fields=converted.fields | changes)
    value, gradient, metrics = compute(converted)
    mask = jnp.asarray(converted.fields["mask"])
    bonus = (case["config"].get("entropy_coef") or 0.0) * mask.astype(float) / jnp.sum(mask, dtype=float)
    close = functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-5)
    close(value - jnp.sum(bonus * entropy), converted.value)
    close(backward((gradient, -bonus), *arguments), ARRAYS[case["outputs"]["grad_logits"]])
    close(metrics["clip_fraction"], ARRAYS[case["outputs"]["aux:pg_clipfrac"]])


@pytest.mark.parametrize("case", [c for c in cases(GRPO, PPO) if c.id not in BOUNDED_BEFORE_THE_MEAN])
def test_policy_loss(case: dict[str, Any]) -> None:
    check_policy_case(case)


@pytest.mark.parametrize("case", [c for c in cases(GRPO) if c.id in BOUNDED_BEFORE_THE_MEAN])
def test_gspo_departs_where_one_token_is_far(case: dict[str, Any]) -> None:
    logps = ARRAYS[case["outputs"]["per_token_logps"]]
    log_ratio = logps - ARRAYS[case["inputs"]["old_per_token_logps"]]
    with pytest.raises(AssertionError):
        check_policy_case(case)
    check_policy_case(case, old_logps=logps - np.clip(log_ratio, -LOG_RATIO_BOUND, LOG_RATIO_BOUND))


@pytest.mark.parametrize("case", cases(VALUE))
def test_value_loss(case: dict[str, Any]) -> None:
    fields = inputs(case, old_values="old_values", returns="returns", mask="completion_mask")
    scores = ARRAYS[case["inputs"]["scores"]][:, positions(case), 0]
    check(
        Case(
            name=case["name"],
            dtype="float32",
            kind="value_loss",
            component="ppo",
            params={"clip_value": case["config"]["clip_range_value"]},
            fields=fields | {"values": scores},
            loss_agg="token_mean",
            value=ARRAYS[case["outputs"]["loss"]],
            gradient=ARRAYS[case["outputs"]["grad_scores"]][:, positions(case), 0],
            metrics={"clip_fraction": float(ARRAYS[case["outputs"]["aux:vf_clipfrac"]])},
        )
    )
