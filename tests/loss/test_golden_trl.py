"""TRL 1.16.0: GRPOTrainer with every loss, token- and sequence-level ratios, masks and KL correction; and GMPOTrainer."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from tests.golden import load
from tests.loss.cases import Case, check, precision

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
}

OWN_LOSS = {"cispo", "sapo", "luspo", "vespo", "gmpo"}
"""Loss types that are a component of their own, `luspo` on sequence-level ratios; the others are `grpo`, and differ in
how they average."""

COUNTS_EMPTY = {"grpo", "dr_grpo", "sapo", "luspo", "gmpo"}
"""TRL divides by all completions, those without a policy token included; here they are not counted."""

METRICS = {
    "clip_fraction": "clip_ratio/region_mean",
    "clip_fraction_high": "clip_ratio/high_mean",
    "clip_fraction_low": "clip_ratio/low_mean",
}

LOCAL_MEAN = {
    "bnpo/ga2_mb1/b": "`bnpo` averages over the tokens of each micro-batch, so its loss depends on the split",
}


def loss_type(case: dict[str, Any]) -> str:
    return "gmpo" if case["trainer"] == "GMPOTrainer" else case["config"]["loss_type"]


def masks(case: dict[str, Any]) -> list[str]:
    config = case["config"]
    return [
        name
        for name, used in (
            ("opsm", config["off_policy_mask_threshold"] is not None),
            ("top_entropy", config["top_entropy_quantile"] < 1),
        )
        if used
    ]


def departure(case: dict[str, Any]) -> str:
    """Say why a case is not reproduced, if it is not."""
    config, kind = case["config"], loss_type(case)
    sequence = config["importance_sampling_level"] == "sequence"
    corrected = config["beta"] and config["use_bias_correction_kl"] and kind != "gmpo"
    if case["name"] in LOCAL_MEAN:
        return LOCAL_MEAN[case["name"]]
    if kind == "gmpo" and case["batch"] == "b":
        return "a completion without policy tokens, of which that batch has one, adds its negative advantage"
    if sequence and corrected:
        return "KL is multiplied by the sequence's ratio, with which it is not unbiased; here by the token's"
    if kind == "vespo" and case["importance_sampling_ratio"]:
        return "the sampler's importance weights enter the completion's ratio; here they weigh tokens"
    return ""


def cases(*, departing: bool) -> list[Any]:
    """Return the loss cases; other losses than the clipped one have neither mask here, and the engine adds entropy."""
    found = [
        c
        for c in CASES
        if c["kind"] == "loss"
        and c["trainer"] in {"GRPOTrainer", "GMPOTrainer"}
        and not (masks(c) and loss_type(c) in OWN_LOSS)
        and not c["config"]["entropy_coef"]
    ]
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
    if case["importance_sampling_ratio"]:
        fields["is_weights"] = np.broadcast_to(ARRAYS[case["importance_sampling_ratio"]], logps.shape)
    if "top_entropy" in masks(case):
        fields["top_entropy_tokens"] = top_entropy_tokens(case, fields["mask"])
    return fields


def top_entropy_tokens(case: dict[str, Any], mask: np.ndarray) -> np.ndarray:
    select = dovetail.get("field", "top_entropy_tokens").bind(fraction=case["config"]["top_entropy_quantile"])
    with precision("float64"):
        return np.asarray(select(jnp.asarray(ARRAYS[f"batch_{case['batch']}/ent"]), jnp.asarray(mask)))


def component(case: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Translate a loss type and its settings."""
    config, kind = case["config"], loss_type(case)
    level = config["importance_sampling_level"]
    high = config["epsilon"] if config["epsilon_high"] is None else config["epsilon_high"]
    clip = {"epsilon_low": config["epsilon"], "epsilon_high": high}
    if kind in OWN_LOSS and (kind, level) != ("luspo", "token"):
        return kind, {
            "cispo": {"max_ratio": config["epsilon_high"], "level": level},
            "sapo": {
                # TRL rounds the temperatures to float32.
                "tau_pos": float(np.float32(config["sapo_temperature_pos"])),
                "tau_neg": float(np.float32(config["sapo_temperature_neg"])),
                "level": level,
            },
            "vespo": {name.removeprefix("vespo_"): value for name, value in config.items() if "vespo" in name},
            "luspo": clip,
            "gmpo": clip,
        }[kind]
    if "opsm" in masks(case):
        return "opsm", clip | {"threshold": config["off_policy_mask_threshold"]}
    if "top_entropy" in masks(case):
        return "top_entropy", clip
    return ("gspo", clip) if level == "sequence" else ("grpo", clip | {"clip_c": config["delta"]})


def convert(case: dict[str, Any]) -> Case:
    config, kind = case["config"], loss_type(case)
    name, params = component(case)
    fields = fields_of(case)
    kl = "k3_corrected" if config["use_bias_correction_kl"] and kind != "gmpo" else "k3"
    return Case(
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
        metrics={ours: case["metrics"][theirs] for ours, theirs in METRICS.items()} if name == "grpo" else {},
    )


@pytest.mark.parametrize("case", cases(departing=False))
def test_loss(case: dict[str, Any]) -> None:
    check(convert(case))


@pytest.mark.parametrize("case", cases(departing=True))
def test_departs_with_a_reason(case: dict[str, Any]) -> None:
    with pytest.raises(AssertionError, match="Not equal"):
        check(convert(case))
