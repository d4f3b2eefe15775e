"""verl 0.9.1: aggregation, the value loss, KL penalties and KL controllers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.golden import Fact
from tests.loss.cases import Case, check, compute
from tests.loss.verl import ARRAYS, CASES, DTYPES, aggregation, cases, clamp, inputs

import dovetail

DEPARTURES = {
    "agg/misc/all_masked/token-mean": "verl gives NaN if nothing is left to average; here zero",
    "agg/misc/all_masked/seq-mean-token-mean": "verl gives NaN if nothing is left to average; here zero",
    "agg/misc/nan_outside/seq-mean-token-sum-norm": "verl's sequence modes let NaN outside the mask through",
}
UNKNOWN = "verl refuses an unknown name; the registry refuses it too"
ERRORS = {
    "agg/misc/dp2_no_info/seq-mean-token-sum-norm": "verl must be given the global counts; Dovetail's weights need no dp_size",
    "agg/misc/unknown": UNKNOWN,
    "klctrl/bad_adaptive_0": "verl refuses a horizon of zero; so does the controller here",
}


KINDS = {"agg_loss", "value_loss", "kl_penalty", "kl_controller"}


def facts() -> list[Fact]:
    """Return the cases of this file."""
    return [Fact("verl", c["function"], c["id"], departure(c)) for c in CASES if c["kind"] in KINDS]


def departure(case: dict[str, Any]) -> str:
    """Return why a case is not reproduced; empty if it is."""
    if case["kind"] == "kl_penalty" and "error" in case:
        return "verl names `full` but does not implement it" if case["config"]["kl_penalty"] == "full" else UNKNOWN
    return DEPARTURES.get(case["id"]) or ERRORS.get(case["id"], "")


def agg_case(case: dict[str, Any]) -> Case:
    fields = inputs(case, loss="loss_mat", mask="loss_mask")
    weighting = aggregation(case["config"]["loss_agg_mode"], fields["mask"], case["config"])
    return Case(
        name=case["id"],
        dtype=DTYPES[case["dtype"]],
        kind="loss_agg",
        component=weighting["loss_agg"],
        fields=fields,
        **weighting,
        value=ARRAYS[case["outputs"]["loss"]],
    )


def value_case(case: dict[str, Any]) -> Case:
    config = case["config"]
    fields = inputs(case, values="vpreds", old_values="values", returns="returns", mask="response_mask")
    return Case(
        name=case["id"],
        dtype=DTYPES[case["dtype"]],
        kind="value_loss",
        component="ppo",
        params={"clip_value": config["cliprange_value"]},
        fields=fields,
        **aggregation(config["loss_agg_mode"], fields["mask"], config),
        value=ARRAYS[case["outputs"]["vf_loss"]],
        gradient=ARRAYS[case["outputs"]["grad_vpreds"]],
        metrics={"clip_fraction": float(ARRAYS[case["outputs"]["vf_clipfrac"]])},
    )


def kl_case(case: dict[str, Any]) -> Case:
    return Case(
        name=case["id"],
        dtype=DTYPES[case["dtype"]],
        kind="kl",
        component=case["config"]["kl_penalty"].replace("+", "_plus"),
        params=clamp(case["config"]["kl_penalty"]),
        fields=inputs(case, logps="logprob", ref_logps="ref_logprob"),
        value=ARRAYS[case["outputs"]["kl"]],
        gradient=ARRAYS[case["outputs"]["grad_log_prob"]],
    )


@pytest.mark.parametrize("case", [c for c in cases("agg_loss") if c.id not in DEPARTURES])
def test_aggregation(case: dict[str, Any]) -> None:
    check(agg_case(case))


@pytest.mark.parametrize("case", [c for c in cases("agg_loss") if c.id in DEPARTURES])
def test_aggregation_departs_where_verl_gives_nan(case: dict[str, Any]) -> None:
    converted = agg_case(case)
    assert np.isnan(converted.value)
    value, _, _ = compute(converted)
    kept = np.where(converted.fields["mask"], converted.fields["loss"], 0.0)
    assert np.isfinite(value)
    assert bool(value == 0) == (not kept.any())


@pytest.mark.parametrize("case", cases("value_loss"))
def test_value_loss(case: dict[str, Any]) -> None:
    check(value_case(case))


@pytest.mark.parametrize("case", cases("kl_penalty"))
def test_kl(case: dict[str, Any]) -> None:
    check(kl_case(case))


def test_adaptive_controller() -> None:
    (case,) = (c.values[0] for c in cases("kl_controller", "AdaptiveKLController"))
    config = case["config"]
    controller: Any = dovetail.get("kl_controller", "adaptive").bind(
        target=config["target_kl"], horizon=config["horizon"]
    )
    with jax.enable_x64(True):
        state = controller.init(config["kl_coef"])
        seen = [controller.coef(state)]
        for kl, samples in zip(ARRAYS[case["inputs"]["current_kl"]], ARRAYS[case["inputs"]["n_steps"]], strict=True):
            state = controller.update(state, jnp.asarray(kl), jnp.asarray(samples))
            seen.append(controller.coef(state))
        np.testing.assert_allclose(np.array(seen), ARRAYS[case["outputs"]["values"]], rtol=1e-9)


def test_fixed_controller() -> None:
    (case,) = (c.values[0] for c in cases("kl_controller", "FixedKLController"))
    controller: Any = dovetail.get("kl_controller", "fixed").bind()
    state = controller.update(controller.init(case["config"]["kl_coef"]), jnp.array(3.0), jnp.array(8))
    np.testing.assert_allclose(controller.coef(state), ARRAYS[case["outputs"]["values"]][0])


def test_every_expected_error_of_verl_has_its_answer() -> None:
    kinds = {"agg_loss", "value_loss", "kl_controller"}
    functions = {"agg_loss", "compute_value_loss", "get_kl_controller"}
    found = {c["id"] for c in CASES if c["kind"] in kinds and c["function"] in functions and "error" in c}
    assert found == set(ERRORS)
    unknown = {c["config"]["kl_penalty"] for c in CASES if c["kind"] == "kl_penalty" and "error" in c}
    assert "full" in unknown  # verl names it and has not written it
    for name in unknown - {"full"}:
        with pytest.raises(dovetail.DovetailError, match="unknown kl"):
            dovetail.get("kl", name.replace("+", "_plus"))
