"""verl 0.9.1: weights and rejection, and the losses of its bypass mode."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from tests.golden import Fact
from tests.loss.cases import TOLERANCE, Case, check, compute, precision
from tests.loss.correction.run import correct, measured
from tests.loss.verl import ARRAYS, CASES, DTYPES, aggregation, cases, inputs
from tests.sampled import sampled

from dovetail.arrays import LOG_RATIO_BOUND

ALL = cases("rollout_correction")
BYPASS = cases("policy_loss", "bypass_mode")

NOTHING_LEFT = [
    c["id"]
    for c in CASES
    if c["kind"] == "rollout_correction" and c.get("error", {}).get("type") == "ZeroDivisionError"
]
"""verl divides by the sum of the weights for its effective sample size, and fails where all are zero."""

LENGTH_EPSILON = 1e-8
"""verl adds this to the denominator of a mean, so normalised weights agree up to it in float64."""

METRICS = {
    "kl_k1": "kl",
    "kl_k3": "k3_kl",
    "chi_squared": "chi2_token",
    "chi_squared_sequence": "chi2_seq",
    "correction/rejected_tokens": "rollout_rs_masked_fraction",
    "correction/effective_sample_size": "rollout_is_eff_sample_size",
}


ERRORS = {
    "rollcorr/misc/bad_token_k4_1": "verl refuses an unknown estimator; so does the config check",
    "rollcorr/misc/bad_token_k1": "verl refuses a criterion without a bound; here the bound has a default",
}


def facts() -> list[Fact]:
    """Return the cases of this file."""
    found = [c for c in CASES if c["kind"] == "rollout_correction" or c["function"] == "bypass_mode"]
    return [Fact("verl", c["function"], c["id"], departure(c)) for c in found]


def departure(case: dict[str, Any]) -> str:
    """Return why a case is not reproduced; empty if it is."""
    if case["id"] in NOTHING_LEFT:
        return "verl divides by zero if all weights are zero; here the effective sample size is zero"
    if case["function"] == "bypass_mode" and everything_rejected(case):
        return "verl's loss is NaN if everything is rejected; here zero"
    return ERRORS.get(case["id"], "")


def bounds(threshold: Any) -> list[float]:
    """Read verl's "0.9_1.1" or 2.0."""
    return [float(bound) for bound in str(threshold).split("_")]


def rejections(config: dict[str, Any]) -> list[dict[str, Any]]:
    """Translate `rollout_rs`: for k1 verl's bounds are ratios, a single one stands for its reciprocal as well."""
    found = []
    for name, threshold in zip(
        (config["rollout_rs"] or "").split(","), str(config["rollout_rs_threshold"]).split(","), strict=True
    ):
        if not name:
            continue
        level, divergence = name.rsplit("_", 1)
        given = bounds(threshold)
        limits = {"high": given[-1]}
        if divergence == "k1":
            limits = {"low": math.log(given[0]) if given[1:] else -math.log(given[0]), "high": math.log(given[-1])}
        found.append({"divergence": divergence, "over": level.removeprefix("seq_"), **limits})
    return found


def weighting(config: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Translate `rollout_is`: two bounds drop what is outside, one truncates."""
    limits = bounds(config["rollout_is_threshold"])
    params: dict[str, Any] = {"upper": limits[-1], "normalize": config["rollout_is_batch_normalize"]}
    level = config["rollout_is"]
    if len(limits) == 1:
        return f"tis_{level}", params
    params["lower"] = limits[0]
    return ("icepop", params) if level == "token" else ("sequence_mask", params | {"count_rejected": True})


def apply(config: dict[str, Any], fields: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray, dict[str, float]]:
    """Choose the component that a run would name, or several where verl has several criteria at once."""
    rejected = rejections(config)
    if config["rollout_is"] and rejected:
        assert len(rejected) == 1
        params = {"level": config["rollout_is"], "upper": bounds(config["rollout_is_threshold"])[0], **rejected[0]}
        weights, kept = correct("tis_reject", fields, **params)
    elif rejected:
        kept = np.all([correct("reject", fields, **params)[1] for params in rejected], axis=0)
        weights = kept.astype(np.float32)
    elif config["rollout_is"]:
        name, params = weighting(config)
        weights, kept = correct(name, fields, **params)
    else:
        weights, kept = fields["mask"].astype(np.float32), fields["mask"]
    return np.asarray(weights), np.asarray(kept), measured(fields, weights)


def fields_of(case: dict[str, Any]) -> dict[str, np.ndarray]:
    return inputs(case, old_logps="old_log_prob", rollout_logps="rollout_log_prob", mask="response_mask")


@pytest.mark.parametrize("case", sampled(ALL, every=16))
def test_weights_mask_and_diagnostics(case: dict[str, Any]) -> None:
    config, fields, dtype = case["config"], fields_of(case), DTYPES[case["dtype"]]
    with precision(dtype):
        weights, kept, metrics = apply(config, fields)
    np.testing.assert_array_equal(kept, ARRAYS[case["outputs"]["modified_response_mask"]].astype(bool))
    if config["rollout_is"]:
        assert weights.dtype == dtype
        expected = np.where(kept, ARRAYS[case["outputs"]["rollout_is_weights"]], 0.0)
        tolerance = max(TOLERANCE[dtype], LENGTH_EPSILON if config["rollout_is_batch_normalize"] else 0.0)
        np.testing.assert_allclose(weights, expected, rtol=tolerance, atol=tolerance)
    share = fields["mask"].any(-1).mean()  # verl counts a row without policy tokens, with a ratio of one
    perplexity_ratio = share * metrics["perplexity_ratio"] + (1 - share)
    np.testing.assert_allclose(perplexity_ratio, case["metrics"]["rollout_corr/ppl_ratio"], rtol=1e-5)
    metrics["chi_squared_sequence"] *= share
    compared = ["correction/rejected_tokens"] if config["rollout_rs"] and "," not in config["rollout_rs"] else []
    compared += ["correction/effective_sample_size"] if config["rollout_is"] and not config["rollout_rs"] else []
    compared += ["kl_k1", "chi_squared", "chi_squared_sequence"]
    if metrics["abs_max"] <= LOG_RATIO_BOUND:
        compared.append("kl_k3")
    else:  # verl does not bound this one
        assert metrics["kl_k3"] < case["metrics"]["rollout_corr/k3_kl"]
    for name in compared:
        expected = case["metrics"][f"rollout_corr/{METRICS[name]}"]
        np.testing.assert_allclose(metrics[name], expected, rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("case", [pytest.param(c, id=c["id"]) for c in CASES if c["id"] in NOTHING_LEFT])
def test_departs_where_verl_fails(case: dict[str, Any]) -> None:
    with precision(DTYPES[case["dtype"]]):
        weights, _, metrics = apply(case["config"], fields_of(case))
    assert (weights == 0).all()
    assert metrics["correction/effective_sample_size"] == 0
    assert metrics["correction/rejected_completions"] == 1


def test_the_other_errors_have_their_answers() -> None:
    errors = {c["id"] for c in CASES if c["kind"] == "rollout_correction" and "error" in c} - {*NOTHING_LEFT}
    assert errors == {*ERRORS}  # an unknown estimator: see test_training.py


def bypass_case(case: dict[str, Any]) -> Case:
    """In verl's bypass mode the sampler's policy is the old one, and the correction looks at the current one."""
    config, dtype = case["config"]["rollout_correction"], DTYPES[case["dtype"]]
    fields = inputs(case, logps="log_prob", old_logps="old_log_prob", advantages="advantages", mask="response_mask")
    with precision(dtype):
        weights, kept, _ = apply(
            config,
            {"old_logps": fields["logps"], "rollout_logps": fields["old_logps"], "mask": fields["mask"]},
        )
    reinforce = config["loss_type"] == "reinforce"
    return Case(
        name=case["id"],
        dtype=dtype,
        kind="policy_loss",
        component="reinforce" if reinforce else "ppo",
        params={} if reinforce else {"clip_c": 3.0},
        fields=fields | {"mask": kept} | ({"is_weights": weights} if config["rollout_is"] else {}),
        **aggregation(case["config"]["loss_agg_mode"], kept, {}),
        value=ARRAYS[case["outputs"]["loss"]],
        gradient=ARRAYS[case["outputs"]["grad_log_prob"]],
    )


def everything_rejected(case: dict[str, Any]) -> bool:
    return bool(np.isnan(ARRAYS[case["outputs"]["loss"]]))


@pytest.mark.parametrize("case", sampled([c for c in BYPASS if not everything_rejected(c.values[0])], every=16))
def test_bypass_mode(case: dict[str, Any]) -> None:
    check(bypass_case(case))


@pytest.mark.parametrize("case", [c for c in BYPASS if everything_rejected(c.values[0])])
def test_departs_where_everything_is_rejected(case: dict[str, Any]) -> None:
    value, gradient, _ = compute(bypass_case(case))
    assert value == 0
    assert (gradient == 0).all()
