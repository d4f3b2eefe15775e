"""TRL 1.16.0: GRPOTrainer with every loss, token- and sequence-level ratios, masks, entropy bonus and KL correction; GMPOTrainer; RLOOTrainer."""

from __future__ import annotations

from typing import Any

import attrs
import jax.numpy as jnp
import numpy as np
import pytest
from tests.golden import Fact, load
from tests.loss.cases import Case, check, precision, weights_of

import dovetail

CASES, ARRAYS = load("trl")

AGGREGATION = {
    "grpo": "sequence_mean_token_mean",
    "bnpo": "token_mean",
    "dapo": "token_mean",
    "dr_grpo": "sequence_mean_token_scale",
    "cispo": "token_mean",
    "sapo": "sequence_mean_token_mean",
    "luspo": "sequence_mean_token_sum",
    "vespo": "token_mean",
    "gmpo": "sequence_mean_token_mean",
    "rloo": "sequence_mean_token_mean",
}

OWN_LOSS = {"cispo", "sapo", "luspo", "vespo", "gmpo", "rloo"}
"""Loss types that are components of their own, `luspo` on sequence-level ratios; the others are `grpo` with different
averages."""

COUNTS_EMPTY = {"grpo", "dr_grpo", "sapo", "luspo", "gmpo", "rloo"}
"""TRL divides by all completions, including those without policy tokens, which do not count here."""

METRICS = {
    "clip_fraction": "clip_ratio/region_mean",
    "clip_fraction_high": "clip_ratio/high_mean",
    "clip_fraction_low": "clip_ratio/low_mean",
}

LOCAL_MEAN = {
    "bnpo/ga2_mb1/b": "`bnpo` averages over the tokens of each micro-batch, so its loss depends on the split",
}


def loss_type(case: dict[str, Any]) -> str:
    own = {"GMPOTrainer": "gmpo", "RLOOTrainer": "rloo"}
    return own.get(case["trainer"]) or case["config"]["loss_type"]


def departure(case: dict[str, Any]) -> str:
    """Return why a case is not reproduced; empty if it is."""
    config, kind = case["config"], loss_type(case)
    sequence = config.get("importance_sampling_level") == "sequence"
    corrected = config["beta"] and config.get("use_bias_correction_kl") and kind != "gmpo"
    if case["name"] in LOCAL_MEAN:
        return LOCAL_MEAN[case["name"]]
    if kind == "gmpo" and case["batch"] == "b":
        return "a completion without policy tokens adds its negative advantage in TRL; that batch has one"
    if sequence and corrected:
        return "TRL multiplies the KL by the sequence's ratio, which is biased; here by the token's ratio"
    if kind == "vespo" and case["importance_sampling_ratio"]:
        return "TRL multiplies the completion's ratio by the sampler's importance weights; here they weight tokens"
    return ""


def cases(*, departing: bool) -> list[Any]:
    """Return the loss cases."""
    found = [c for c in CASES if c["kind"] == "loss"]
    return [pytest.param(c, id=c["name"]) for c in found if bool(departure(c)) == departing]


def fields_of(case: dict[str, Any]) -> dict[str, np.ndarray]:
    batch = f"batch_{case['batch']}"
    logps, mask = ARRAYS[f"{batch}/logps"], ARRAYS[f"{batch}/mask"].astype(bool)
    old_logps = ARRAYS[case["old_logps"]] if case["old_logps"].startswith("batch") else logps
    fields = {
        "logps": logps,
        "old_logps": old_logps,
        "ref_logps": ARRAYS[f"{batch}/ref"],
        "rollout_logps": ARRAYS[case["sampling_logps"]] if case["sampling_logps"] else old_logps,
        "advantages": np.broadcast_to(ARRAYS[f"{batch}/adv"][:, None], logps.shape),
        "mask": mask & ARRAYS[f"{batch}/tool"].astype(bool) if case["tool_mask"] else mask,
    }
    weights = ARRAYS[case["importance_sampling_ratio"]] if case["importance_sampling_ratio"] else 1.0
    fields["is_weights"] = np.broadcast_to(weights, logps.shape) * selected(case, fields)
    return fields


def selected(case: dict[str, Any], fields: dict[str, np.ndarray]) -> np.ndarray:
    """Return the factors with which the selections multiply the loss, like importance weights."""
    config = case["config"]
    at_hand = fields | {"old_entropy": ARRAYS[f"batch_{case['batch']}/ent"]}
    chosen = {}
    if config.get("off_policy_mask_threshold") is not None:
        chosen["opsm"] = {"threshold": config["off_policy_mask_threshold"]}
    if config.get("top_entropy_quantile", 1.0) < 1:
        chosen["top_entropy"] = {"fraction": config["top_entropy_quantile"]}
    kept = np.ones_like(fields["mask"])
    with precision("float64"):
        for name, params in chosen.items():
            selection = dovetail.get("loss_mask", name)
            kept = kept & selection.bind(**params)(*(jnp.asarray(at_hand[read]) for read in selection.reads))
    return np.asarray(kept)


def component(case: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Translate a loss type and its settings."""
    config, kind = case["config"], loss_type(case)
    level = config.get("importance_sampling_level", "token")
    high = config["epsilon"] if config["epsilon_high"] is None else config["epsilon_high"]
    clip = {"epsilon_low": config["epsilon"], "epsilon_high": high}
    if kind in OWN_LOSS and (kind, level) != ("luspo", "token"):
        return kind, {
            "cispo": {"max_ratio": config["epsilon_high"], "level": level},
            "sapo": {
                # TRL rounds the temperatures to float32.
                "tau_pos": float(np.float32(config.get("sapo_temperature_pos", 1.0))),
                "tau_neg": float(np.float32(config.get("sapo_temperature_neg", 1.0))),
                "level": level,
            },
            "vespo": {name.removeprefix("vespo_"): value for name, value in config.items() if "vespo" in name},
            "luspo": clip,
            "gmpo": clip,
            "rloo": clip,
        }[kind]
    return "grpo", clip | {"clip_c": config["delta"], "level": level}


def convert(case: dict[str, Any]) -> Case:
    config, kind = case["config"], loss_type(case)
    name, params = component(case)
    fields = fields_of(case)
    per_token = name == "grpo" and params["level"] == "token"  # TRL's share of completions is not one of tokens
    kl = "k3_corrected" if config.get("use_bias_correction_kl") and kind != "gmpo" else "k3"
    converted = Case(
        name=case["name"],
        dtype="float64",
        kind="policy_loss",
        component=name,
        params=params,
        fields=fields,
        loss_agg=AGGREGATION[kind],
        loss_agg_params={"normalizer": float(config["max_completion_length"])} if kind == "dr_grpo" else {},
        scale=float(fields["mask"].any(-1).mean()) if kind in COUNTS_EMPTY else 1.0,
        rows=tuple(case["rows"]) if case["rows"] else None,
        kl=(kl, {"clamp": None}, config["beta"]) if config["beta"] else None,
        value=ARRAYS[f"{case['name']}/loss"],
        gradient=ARRAYS[f"{case['name']}/grad_logps"],
        metrics={ours: case["metrics"][theirs] for ours, theirs in METRICS.items()} if per_token else {},
    )
    bonus = config.get("entropy_coef") or 0.0
    entropy = np.where(fields["mask"], ARRAYS[f"batch_{case['batch']}/ent"], 0.0)
    return attrs.evolve(converted, value=converted.value + bonus * np.sum(weights_of(converted) * entropy))


def facts() -> list[Fact]:
    """Return the cases of this file."""
    chosen = [*cases(departing=False), *cases(departing=True)]
    found = [(parameter.id, parameter.values[0]) for parameter in chosen]
    return [Fact("trl", f"{c['trainer']}, loss {loss_type(c)}", name, departure(c)) for name, c in found]


@pytest.mark.parametrize("case", cases(departing=False))
def test_loss(case: dict[str, Any]) -> None:
    check(convert(case))


@pytest.mark.parametrize("case", cases(departing=True))
def test_departs_with_a_reason(case: dict[str, Any]) -> None:
    with pytest.raises(AssertionError, match="Not equal"):
        check(convert(case))
