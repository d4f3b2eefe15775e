"""verl 0.9.1: the policy losses, alone and in the whole loss of the actor."""

from __future__ import annotations

from typing import Any

import attrs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.golden import Fact
from tests.loss.cases import Case, check, compute, precision, weights_of
from tests.loss.verl import ARRAYS, CASES, DTYPES, aggregation, cases, clamp, inputs
from tests.sampled import sampled

import dovetail
from dovetail.arrays import LOG_RATIO_BOUND

COMPONENTS = {
    "vanilla": "ppo",
    "gspo": "gspo",
    "gpg": "gpg",
    "compute_policy_loss_reinforce": "reinforce",
    "cispo": "cispo",
    "sapo": "sapo",
    "geo_mean": "geo_mean",
    "dppo_tv": "dppo_tv",
    "dppo_kl": "dppo_kl",
    "dro": "dro",
    "clip_cov": "clip_cov",
    "kl_cov": "kl_cov",
}

CLIPPED = {"vanilla", "gspo", "cispo", "geo_mean", "dppo_tv", "dppo_kl", "clip_cov"}
"""The losses that read verl's clip range."""

LENGTH_EPSILON = 1e-8
"""verl's `geo_mean` adds it to a completion's length, in the exponent too: float64 agrees to 1e-8 there."""

METRICS = {
    "vanilla": {"clip_fraction": "pg_clipfrac", "dual_clip_fraction": "pg_clipfrac_lower", "approx_kl": "ppo_kl"},
    "gspo": {"clip_fraction": "pg_clipfrac", "approx_kl": "ppo_kl"},
    "cispo": {"clip_fraction": "pg_clipfrac", "approx_kl": "ppo_kl"},
    "dppo_tv": {"clip_fraction": "pg_clipfrac", "truncated_fraction": "pg_clipfrac_lower", "approx_kl": "ppo_kl"},
    "dppo_kl": {"clip_fraction": "pg_clipfrac", "truncated_fraction": "pg_clipfrac_lower", "approx_kl": "ppo_kl"},
    "sapo": {"approx_kl": "ppo_kl"},
    "geo_mean": {"approx_kl": "ppo_kl"},
    "dro": {"approx_kl": "ppo_kl"},
    "clip_cov": {"cov_fraction": "pg_clipfrac"},
}

WEIGHS_COMPLETIONS = [
    c["id"] for c in CASES if c["function"] == "geo_mean" and "rollout_is_weights" in c.get("inputs", {})
]
"""verl's `geo_mean` weights completions by the geometric mean of their importance weights; here they weight tokens."""

RANDOM = [c["id"] for c in CASES if c["id"].endswith("clip_cov_rng")]
"""These depend on torch's random numbers, so only the number of dropped tokens can be compared."""


UNBOUNDED = [c["id"] for c in CASES if c["function"] in {"clip_cov", "kl_cov"} and "/s6_extreme/" in c["id"]]
"""verl does not bound the log-ratio in these two; here e^20 is the largest ratio of any loss."""


CLIP_C = "loss/misc/clip_c_le_1"
DEPARTURES = {
    **dict.fromkeys(
        WEIGHS_COMPLETIONS,
        "verl's `geo_mean` weights a completion by the mean of its weights; here each token has its own",
    ),
    **dict.fromkeys(RANDOM, "depends on torch's random numbers; the same number of tokens is drawn"),
    **dict.fromkeys(UNBOUNDED, "verl does not bound the log-ratio here; e^20 is the largest ratio of any loss"),
    CLIP_C: "verl refuses a clip_ratio_c of 1 or less; so does the range of `clip_c`, when a config is read",
}


def facts() -> list[Fact]:
    """Return the cases of this file."""
    kinds = {"policy_loss": "policy loss", "actor_loss": "the whole loss of the actor"}
    found = [(c, kinds[c["kind"]]) for c in CASES if c["kind"] in kinds and c["function"] != "bypass_mode"]
    return [Fact("verl", f"{kind}, {c['function']}", c["id"], DEPARTURES.get(c["id"], "")) for c, kind in found]


def clip_params(config: dict[str, Any], function: str) -> dict[str, Any]:
    """Translate verl's settings: 0.2 unless set; `clip_ratio` counts only where the others are None."""
    params = {
        ours: config["clip_ratio"] if config.get(theirs, 0.2) is None else config.get(theirs, 0.2)
        for ours, theirs in (("epsilon_low", "clip_ratio_low"), ("epsilon_high", "clip_ratio_high"))
    }
    bound = {"vanilla": "clip_c", "dppo_tv": "max_ratio", "dppo_kl": "max_ratio"}.get(function)
    return params | ({bound: config.get("clip_ratio_c", 3.0)} if bound else {})


def params_of(config: dict[str, Any], function: str) -> dict[str, Any]:
    if function in CLIPPED:
        return clip_params(config, function)
    return {
        "sapo": {"tau_pos": config.get("tau_pos", 1.0), "tau_neg": config.get("tau_neg", 1.05)},
        "dro": {"beta": config.get("policy_loss", {}).get("dro_beta")},
        "kl_cov": {"kl_coef": config.get("policy_loss", {}).get("ppo_kl_coef", 0.1)},
    }.get(function, {})


def selected(case: dict[str, Any], fields: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the tokens that Clip-Cov or KL-Cov selects, from the current policy's covariance as in verl."""
    function, options = case["function"], case["config"].get("policy_loss", {})
    given = {
        "clip_cov": {"clip_cov_ratio": "fraction", "clip_cov_lb": "lower", "clip_cov_ub": "upper"},
        "kl_cov": {"kl_cov_ratio": "fraction"},
    }.get(function)
    if given is None:
        return {}
    component = dovetail.get("field", f"{function}_tokens")
    at_hand: dict[str, Any] = fields | {"old_logps": fields["logps"], "key": jax.random.key(7)}
    params = {ours: options[theirs] for theirs, ours in given.items() if theirs in options}
    with precision(DTYPES[case["dtype"]]):
        tokens = component(*(jnp.asarray(at_hand[name]) for name in component.reads), **params)
    return {f"{function}_tokens": np.asarray(tokens)}


def policy_case(case: dict[str, Any]) -> Case:
    config, function = case["config"], case["function"]
    fields = inputs(
        case,
        logps="log_prob",
        old_logps="old_log_prob",
        advantages="advantages",
        mask="response_mask",
        is_weights="rollout_is_weights",
    )
    # `sapo` averages so whatever the aggregation asked for; `gspo` unless one is.
    mode = config.get("loss_agg_mode", "seq-mean-token-mean" if function == "gspo" else "token-mean")
    mode = "seq-mean-token-mean" if function == "sapo" else mode
    weighting = aggregation(mode, fields["mask"], config.get("global_batch_info") or {})
    if function == "geo_mean":  # a mean over completions, empty ones counted, whatever the aggregation asked for
        weighting = {"loss_agg": "seq-mean-token-mean", "scale": float(fields["mask"].any(-1).mean())}
    return Case(
        name=case["id"],
        dtype=DTYPES[case["dtype"]],
        kind="policy_loss",
        component=COMPONENTS[function],
        params=params_of(config, function),
        fields=fields | selected(case, fields),
        **weighting,
        value=ARRAYS[case["outputs"]["loss"]],
        gradient=ARRAYS[case["outputs"]["grad_log_prob"]],
        metrics={
            ours: case["metrics"][f"actor/{theirs}"]
            for ours, theirs in METRICS.get(function, {}).items()
            if f"actor/{theirs}" in case["metrics"]
        },
        tolerance=LENGTH_EPSILON if function == "geo_mean" and case["dtype"] == "f64" else None,
    )


ALL = cases("policy_loss", *COMPONENTS)


@pytest.mark.parametrize(
    "case", sampled([c for c in ALL if c.id not in {*WEIGHS_COMPLETIONS, *RANDOM, *UNBOUNDED}], every=20)
)
def test_policy_loss(case: dict[str, Any]) -> None:
    check(policy_case(case))


@pytest.mark.parametrize("case", [c for c in ALL if c.id in WEIGHS_COMPLETIONS])
def test_geo_mean_departs_in_its_importance_weights(case: dict[str, Any]) -> None:
    converted = policy_case(case)
    mask, weights = converted.fields["mask"], converted.fields["is_weights"]
    logs = np.where(mask, np.log(weights + 1e-10), 0.0).sum(-1, keepdims=True) / np.maximum(mask.sum(-1), 1)[:, None]
    same_for_all_tokens = np.broadcast_to(np.exp(logs), weights.shape)
    check(attrs.evolve(converted, fields=converted.fields | {"is_weights": same_for_all_tokens}))


@pytest.mark.parametrize("case", [c for c in ALL if c.id in RANDOM])
def test_clip_cov_draws_as_many_tokens(case: dict[str, Any]) -> None:
    fields = policy_case(case).fields
    drawn = fields["clip_cov_tokens"].sum() / fields["mask"].sum()
    np.testing.assert_allclose(drawn, case["metrics"]["actor/pg_clipfrac"], rtol=1e-5)


@pytest.mark.parametrize("case", [c for c in ALL if c.id in UNBOUNDED])
def test_departs_where_a_ratio_overflows(case: dict[str, Any]) -> None:
    converted = policy_case(case)
    value, gradient, _ = compute(converted)
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()
    near = abs(converted.fields["logps"] - converted.fields["old_logps"]) <= LOG_RATIO_BOUND
    assert not near.all()
    np.testing.assert_allclose(gradient[near], converted.gradient[near], rtol=1e-4, atol=1e-9)


def test_the_one_expected_error_has_its_answer() -> None:
    errors = {c["id"] for c in CASES if c["kind"] == "policy_loss" and "error" in c}
    assert errors == {CLIP_C}


@pytest.mark.parametrize("case", sampled(cases("actor_loss"), every=20))
def test_whole_actor_loss(case: dict[str, Any]) -> None:
    """The policy loss minus the entropy plus KL, all with the same weights."""
    config = case["config"]
    info = {name: config.get(name) for name in ("dp_size", "batch_num_tokens", "global_batch_size")}
    converted = policy_case(case | {"function": config["loss_mode"], "config": config | {"global_batch_info": info}})
    extra = inputs(case, ref_logps="ref_log_prob", entropy="entropy")
    mask = converted.fields["mask"]
    entropy = (config["entropy_coeff"] or 0.0) * np.where(mask, extra.pop("entropy", 0.0), 0.0)
    weights = weights_of(converted)
    kl = None
    if config["use_kl_loss"]:
        kl = (config["kl_loss_type"].replace("+", "_plus"), clamp(config["kl_loss_type"]), config["kl_loss_coef"])
    check(
        attrs.evolve(
            converted,
            fields=converted.fields | extra,
            kl=kl,
            value=converted.value + np.sum(weights * entropy),
        )
    )
