"""TRL 1.16.0: GRPOTrainer with its token- and sequence-level ratios, and the losses that differ only in how they average."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.golden import load
from tests.loss.cases import Case, check

CASES, ARRAYS = load("trl")

AGGREGATION = {
    "grpo": "sequence_mean_token_mean",
    "bnpo": "token_mean",
    "dapo": "token_mean",
    "dr_grpo": "sequence_mean_token_sum_norm",
}

COUNTS_EMPTY = {"grpo", "dr_grpo"}
"""TRL divides by all completions, those without a policy token included; here they are not counted."""

METRICS = {
    "clip_fraction": "clip_ratio/region_mean",
    "clip_fraction_high": "clip_ratio/high_mean",
    "clip_fraction_low": "clip_ratio/low_mean",
}

LOCAL_MEAN = {
    "bnpo/ga2_mb1/b": "`bnpo` averages over the tokens of each micro-batch, so its loss depends on the split",
}


def applies(case: dict[str, Any]) -> bool:
    """Leave out what other components do: other losses, masks by entropy or by divergence."""
    config = case["config"]
    return (
        case["kind"] == "loss"
        and case["trainer"] == "GRPOTrainer"
        and config["loss_type"] in AGGREGATION
        and config["top_entropy_quantile"] == 1.0
        and config["off_policy_mask_threshold"] is None
    )


def multiplies_kl(case: dict[str, Any]) -> bool:
    """TRL's own default multiplies the KL term by the ratio (DeepSeek-V3.2); here `kl` is a component of its own."""
    return case["config"]["beta"] != 0 and case["config"]["use_bias_correction_kl"]


def cases() -> list[Any]:
    return [pytest.param(c, id=c["name"]) for c in CASES if applies(c) and not multiplies_kl(c)]


def fields_of(case: dict[str, Any]) -> dict[str, np.ndarray]:
    batch = f"batch_{case['batch']}"
    logps, mask = ARRAYS[f"{batch}/logps"], ARRAYS[f"{batch}/mask"].astype(bool)
    fields = {
        "logps": logps,
        "old_logps": ARRAYS[case["old_logps"]] if case["old_logps"].startswith("batch") else logps,
        "ref_logps": ARRAYS[f"{batch}/ref"],
        "advantages": np.broadcast_to(ARRAYS[f"{batch}/adv"][:, None], logps.shape),
        "mask": mask,
    }
    if case["importance_sampling_ratio"]:
        fields["is_weights"] = np.broadcast_to(ARRAYS[case["importance_sampling_ratio"]], logps.shape)
    return fields


def convert(case: dict[str, Any]) -> Case:
    config = case["config"]
    lengths = ARRAYS[f"batch_{case['batch']}/mask"].sum(-1)
    sequence = config["importance_sampling_level"] == "sequence"
    high = config["epsilon"] if config["epsilon_high"] is None else config["epsilon_high"]
    params = {"epsilon_low": config["epsilon"], "epsilon_high": high}
    norm = {"normalizer": float(config["max_completion_length"])}
    return Case(
        name=case["name"],
        dtype="float64",
        kind="policy_loss",
        component="gspo" if sequence else "grpo",
        params=params if sequence else params | {"clip_c": config["delta"]},
        fields=fields_of(case),
        loss_agg=AGGREGATION[config["loss_type"]],
        loss_agg_params=norm if config["loss_type"] == "dr_grpo" else {},
        scale=float((lengths > 0).mean()) if config["loss_type"] in COUNTS_EMPTY else 1.0,
        rows=tuple(case["rows"]) if case["rows"] else None,
        kl=("k3", {"clamp": None}, config["beta"]) if config["beta"] else None,
        value=ARRAYS[f"{case['name']}/loss"],
        gradient=ARRAYS[f"{case['name']}/grad_logps"],
        metrics={} if sequence else {ours: case["metrics"][theirs] for ours, theirs in METRICS.items()},
    )


@pytest.mark.parametrize("case", [c for c in cases() if c.id not in LOCAL_MEAN])
def test_loss(case: dict[str, Any]) -> None:
    check(convert(case))


@pytest.mark.parametrize("case", [c for c in cases() if c.id in LOCAL_MEAN])
def test_departs_where_the_mean_depends_on_the_split(case: dict[str, Any]) -> None:
    with pytest.raises(AssertionError, match="value"):
        check(convert(case))
