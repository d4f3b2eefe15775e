"""The rest of the catalogue against verl and TRL; where they differ, the reason stands beside the case."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from tests.advantage.cases import ALONE, EMPTY_ROW, TOLERANCE, Case, estimate, in_groups_of, padded, verl_cases
from tests.golden import Arrays, Fact, load

import dovetail

EVERY_ROW = range(99)
SPREAD = f"{EMPTY_ROW}, {ALONE}, and whitening spreads that over the whole batch"
REFUSED = "verl refuses a group of one"
ONE_TOKEN = "verl fails on a batch of one policy token; here whitening gives zero"
EQUAL = "for equal returns verl leaves ε/∑W; here exactly zero"
TAIL = "verl starts the tail at a position equal to a number of policy tokens; the mask has holes"
CANCELLED = "the two rewards cancel, which leaves the rounding error of verl's float32"

DEPARTURES: dict[tuple[str, str], dict[int, str]] = {
    ("gdpo", "s2_groups"): dict.fromkeys(EVERY_ROW, SPREAD),
    ("gdpo", "s4_1x1"): {0: ONE_TOKEN},
    ("gpg", "s2_groups"): dict.fromkeys((0, 1, 2, 3), EMPTY_ROW) | {7: ALONE},
    ("gpg", "s4_1x1"): {0: ALONE},
    ("grpo_passk", "s2_groups"): dict.fromkeys(EVERY_ROW, REFUSED),
    ("grpo_passk", "s4_1x1"): {0: REFUSED},
    ("opo", "s2_groups"): {7: ALONE},
    ("opo", "s4_1x1"): {0: ALONE},
    ("optimal_token_baseline", "s2_groups"): {7: ALONE} | dict.fromkeys((4, 5, 6), EQUAL),
    ("optimal_token_baseline", "s4_1x1"): {0: ALONE},
    ("reinforce_plus_plus", "s4_1x1"): {0: ONE_TOKEN},
    ("reinforce_plus_plus_baseline", "s2_groups"): dict.fromkeys(EVERY_ROW, SPREAD),
    ("reinforce_plus_plus_baseline", "s4_1x1"): {0: ONE_TOKEN},
    ("tir_optimal_token_baseline", "s2_groups"): {7: ALONE} | dict.fromkeys((4, 5, 6), EQUAL),
    ("tir_optimal_token_baseline", "s4_1x1"): {0: ALONE},
}
"""Rows in which an estimator departs from verl, by function and set."""
DIFFER = {ALONE, SPREAD, TAIL}
"""Reasons for which the numbers differ greatly, whatever the rewards."""
REWARDS_IN_FLOAT32 = "verl's gdpo puts each reward into float32"


def departures(case: Case, batch: str) -> dict[int, str]:
    """Return the rows that are not compared, with the reason."""
    found = dict(DEPARTURES.get((case["function"], batch), {}))
    if case["function"] == "gdpo" and case["id"].endswith("s1_ragged/gdpo_rew_a-rew_b_w0_norm1"):
        found |= dict.fromkeys(EVERY_ROW, CANCELLED)
    if case["function"] == "optimal_token_baseline" and batch == "s3_multiturn" and case["config"]["handle_zero_tail"]:
        found |= dict.fromkeys((0, 3, 5), TAIL)
    if case["function"] == "gpg" and batch == "s2_groups":
        found |= dict.fromkeys((4, 5, 6), EMPTY_ROW)
    return found


def ours(case: Case, x: Arrays) -> np.ndarray:
    """Return our estimator's advantages on verl's inputs."""
    name, config = case["function"], case["config"]
    fields = {
        "mask": x["response_mask"],
        "token_rewards": x["token_level_rewards"],
        "scores": x["token_level_rewards"].sum(axis=1),
        "group_ids": x.get("index"),
        "greedy_scores": x.get("reward_baselines"),
        "old_logps": x.get("old_log_probs"),
        "old_sum_pi_squared": x.get("sum_pi_squared"),
        "is_weights": x.get("rollout_is_weights"),
    }
    params: dict[str, Any] = {
        "gpg": lambda: {"f_norm": config["f_norm"], "count": "nonzero"},
        "grpo_passk": lambda: {"scale": _scale(config)},
        "gdpo": lambda: {"scale": _scale(config), "weights": _weights(config)},
        "optimal_token_baseline": lambda: {"handle_zero_tail": config["handle_zero_tail"]},
        "tir_optimal_token_baseline": lambda: {"handle_zero_tail": config["handle_zero_tail"]},
        "reinforce_plus_plus": lambda: {"gamma": config["gamma"]},
    }.get(name, dict)()
    if name == "gdpo":
        keys = config["gdpo_reward_keys"]
        columns = [x[key] for key in keys] if keys else [fields["scores"]]
        fields["score_table"] = np.stack(columns, axis=1)
    if config.get("use_rollout_is_weights"):
        name = f"{name}_corrected"
    read = {field: fields[field] for field in dovetail.get("advantage", name).reads}
    (advantages,) = estimate(name, padded(read), **params)
    rows, width = x["response_mask"].shape
    return advantages[:rows, :width]


def _scale(config: dict[str, Any]) -> str:
    return "group" if config["norm_adv_by_std_in_grpo"] else "none"


def _weights(config: dict[str, Any]) -> tuple[float, ...] | None:
    return tuple(config["gdpo_reward_weights"]) if config["gdpo_reward_weights"] else None


FUNCTIONS = (
    "gdpo",
    "gpg",
    "grpo_passk",
    "opo",
    "optimal_token_baseline",
    "reinforce_plus_plus",
    "reinforce_plus_plus_baseline",
    "remax",
    "tir_optimal_token_baseline",
)
GDPO_OF_TRL = "adv/normalize_then_sum/weights"


def facts() -> list[Fact]:
    """Return the cases of this file."""
    found = [Fact("trl", "advantages", GDPO_OF_TRL)]
    for case in load("verl")[0]:
        parts = case["id"].split("/")
        if case["kind"] == "advantage" and case["function"] in FUNCTIONS and parts[1] in ("f32", "f64"):
            reasons = dict.fromkeys(departures(case, parts[2]).values())
            found.append(Fact("verl", f"advantage, {case['function']}", case["id"], "; ".join(reasons)))
    return found


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("theirs", FUNCTIONS)
def test_verls_numbers(theirs: str, dtype: str) -> None:
    with jax.enable_x64(dtype == "float64"):
        for case, batch, inputs, outputs in verl_cases(dtype, theirs):
            advantages = ours(case, inputs)
            assert np.isfinite(advantages).all(), case["id"]
            apart = departures(case, batch)
            if case.get("error"):
                assert apart, f"{case['id']}: {case['error']}"
                continue
            # verl's remax and gae leave values outside the mask.
            expected = np.where(inputs["response_mask"], outputs["advantages"], 0)
            kept = [row for row in range(len(advantages)) if row not in apart]
            in_float32 = theirs == "gdpo" and case["config"]["gdpo_reward_keys"]
            tolerance = TOLERANCE["float32" if in_float32 else dtype]
            np.testing.assert_allclose(advantages[kept], expected[kept], **tolerance, err_msg=case["id"])
            for row, reason in apart.items():
                if row < len(expected) and reason in DIFFER and inputs["response_mask"][row].any():
                    assert not np.allclose(advantages[row], expected[row], atol=1e-4), (
                        f"{case['id']}: no departure any more"
                    )


@pytest.mark.parametrize("name", ["optimal_token_baseline", "tir_optimal_token_baseline"])
def test_verl_leaves_no_more_than_epsilon_of_equal_returns(name: str) -> None:
    with jax.enable_x64(True):
        for case, batch, inputs, outputs in verl_cases("float64", name):
            if batch == "s2_groups" and "/out/" in case["id"]:
                advantages = ours(case, inputs)
                expected = np.where(inputs["response_mask"], outputs["advantages"], 0)
                equal = [4, 5, 6]
                if not case["config"]["handle_zero_tail"]:
                    np.testing.assert_array_equal(advantages[equal], 0)
                    np.testing.assert_allclose(expected[equal], 0, atol=1e-6)


def test_gpg_counts_by_default_what_the_paper_counts() -> None:
    """verl's α is B over completions with a score; the paper's, over those in groups whose scores vary."""
    for case, batch, inputs, outputs in verl_cases("float32", "gpg"):
        if batch in ("s2_groups", "s4_1x1"):
            continue
        scores, ids = inputs["token_level_rewards"].sum(axis=1), inputs["index"]
        varied = sum(np.ptp(scores[ids == i]) > 0 for i in ids)
        ratio = np.count_nonzero(scores) / max(varied, 1)
        fields = {"scores": scores, "group_ids": ids, "mask": inputs["response_mask"]}
        (advantages,) = estimate("gpg", fields, f_norm=case["config"]["f_norm"])
        np.testing.assert_allclose(
            advantages, outputs["advantages"] * ratio, **TOLERANCE["float32"], err_msg=case["id"]
        )


def test_gdpo_gives_trls_numbers() -> None:
    """This includes abstentions; a completion on which all rewards abstained has an empty mask and is left out."""
    cases, arrays = load("trl")
    (golden,) = [c for c in cases if c["name"] == GDPO_OF_TRL]
    table = arrays[golden["rewards"]].astype(np.float32)
    _, group_ids, _ = in_groups_of(golden["num_generations"], table)
    fields = {
        "score_table": table,
        "group_ids": group_ids,
        "mask": ~np.isnan(table).all(axis=1, keepdims=True),
    }
    weights = tuple(golden["config"]["reward_weights"])
    (advantages,) = estimate("gdpo", fields, weights=weights, epsilon=1e-4, over="completions")
    np.testing.assert_allclose(
        advantages[:, 0], arrays["adv/normalize_then_sum/weights/advantages"], **TOLERANCE["float32"]
    )
