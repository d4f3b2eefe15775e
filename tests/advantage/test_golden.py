"""`grpo`, `dr_grpo`, `rloo` and `gae` against verl, tunix and TRL; where they differ, the reason stands beside the case."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from tests.advantage.cases import (
    ALONE,
    IN_FLOAT32,
    TOLERANCE,
    VERL_ROWS,
    estimate,
    in_groups_of,
    in_one_batch,
    verl_cases,
)
from tests.golden import Fact, load

import dovetail

ONE_TOKEN = "a batch of one policy token: verl fails and tunix gives NaN in float32; here whitening gives zero"
TOKEN_COUNT = "tunix whitens with means over the number of policy tokens plus 1e-8, which shows in float64"
ROUNDING = "tunix takes the mean of scores in float32, with its rounding error"
TUNIX_CASES = {
    "adv/grpo/n4g1_group_size_1/float64": "tunix gives a group of one NaN",
    "adv/grpo/n2g4_large_offset/float32": ROUNDING,
    "adv/grpo/n2g4_tiny_spread/float32": ROUNDING,
}


BASELINES = ("grpo", "grpo_vectorized", "rloo", "rloo_vectorized")
TUNIX_ADVANTAGES = ("adv/grpo/", "adv/drgrpo/", "adv/rloo/", "adv/gae/")


def facts() -> list[Fact]:
    """Return the cases of this file."""
    verl, _ = load("verl")
    found = []
    for case in verl:
        name, batch = case["function"], case["id"].split("/")[2] if case["kind"] == "advantage" else ""
        if batch and name in BASELINES and "misc" not in case["id"]:
            reasons = dict.fromkeys(VERL_ROWS.get(batch, {}).values())
            found.append(Fact("verl", f"advantage, {name}", case["id"], "; ".join(reasons)))
        elif batch and name == "gae" and "misc" not in case["id"]:
            found.append(Fact("verl", "advantage, gae", case["id"], ONE_TOKEN if batch == "s4_1x1" else ""))
        elif case["id"] in EQUAL_SCORES:
            found.append(Fact("verl", f"advantage, {name}", case["id"], EQUAL_SCORES[case["id"]][2]))
    tunix, _ = load("tunix")
    for case in tunix:
        if case["name"].startswith(TUNIX_ADVANTAGES):
            found.append(Fact("tunix", case["function"], case["name"], TUNIX_CASES.get(case["name"], "")))
    return found + [Fact("trl", "advantages", name) for name, *_ in TRL_CASES]


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(
    ("theirs", "normed", "name"), [("grpo", True, "grpo"), ("grpo", False, "dr_grpo"), ("rloo", None, "rloo")]
)
def test_baseline_methods_give_verls_numbers(theirs: str, normed: bool | None, name: str, dtype: str) -> None:
    both = verl_cases(dtype, theirs, f"{theirs}_vectorized")
    found = [each for each in both if each[0]["config"].get("norm_adv_by_std_in_grpo") == normed]
    batches = [(x["token_level_rewards"].sum(axis=1), x["index"], x["response_mask"]) for _, _, x, _ in found]
    with jax.enable_x64(dtype == "float64"):
        results = in_one_batch(name, batches)
    for (case, batch, _, outputs), ours in zip(found, results, strict=True):
        departures = VERL_ROWS.get(batch, {})
        kept = [row for row in range(len(ours)) if row not in departures]
        tolerance = TOLERANCE["float32" if case["function"] in IN_FLOAT32 else dtype]
        np.testing.assert_allclose(ours[kept], outputs["advantages"][kept], **tolerance, err_msg=case["id"])
        for row, reason in departures.items():
            if reason is ALONE and case["function"] != "rloo_vectorized":
                assert not ours[row].any(), case["id"]
                assert outputs["advantages"][row].any(), f"{case['id']}: no departure any more"


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_gae_gives_verls_numbers(dtype: str) -> None:
    with jax.enable_x64(dtype == "float64"):
        for case, batch, inputs, outputs in verl_cases(dtype, "gae"):
            mask = inputs["response_mask"]
            fields = {"token_rewards": inputs["token_level_rewards"], "values": inputs["values"], "mask": mask}
            advantages, returns = estimate("gae", fields, **case["config"])
            if batch == "s4_1x1":
                assert case["error"], ONE_TOKEN
                assert advantages.item() == 0
                np.testing.assert_allclose(returns, inputs["token_level_rewards"], **TOLERANCE[dtype])
                continue
            # verl leaves values outside the mask.
            for ours, name in ((advantages, "advantages"), (returns, "returns")):
                theirs = np.where(mask, outputs[name], 0)
                np.testing.assert_allclose(ours, theirs, **TOLERANCE[dtype], err_msg=f"{case['id']} {name}")


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("theirs", "name"), [("grpo", "grpo"), ("drgrpo", "dr_grpo"), ("rloo", "rloo")])
def test_baseline_methods_give_tunix_numbers(theirs: str, name: str, dtype: str) -> None:
    cases, arrays = load("tunix")
    found = [c for c in cases if c["name"].startswith(f"adv/{theirs}/") and c["name"].endswith(dtype)]
    assert found
    batches = [in_groups_of(c["config"]["num_generations"], arrays[c["inputs"]["rewards"]]) for c in found]
    with jax.enable_x64(dtype == "float64"):
        results = in_one_batch(name, batches)
    for case, (rewards, *_), ours in zip(found, batches, results, strict=True):
        expected = arrays[case["outputs"]["out"]]
        if case["name"] in TUNIX_CASES:
            assert not np.allclose(ours[:, 0], expected, **TOLERANCE[dtype]), f"{case['name']}: no departure any more"
            expected = _exactly(rewards, case["config"]["num_generations"], name)
        np.testing.assert_allclose(ours[:, 0], expected, **TOLERANCE[dtype], err_msg=case["name"])


def _exactly(rewards: np.ndarray, group_size: int, name: str) -> np.ndarray:
    """Return the float64 result of the formula for these rewards, and zero for a group of one."""
    groups = rewards.astype(np.float64).reshape(-1, group_size)
    deviations = groups - groups.mean(axis=1, keepdims=True)
    if name == "grpo" and group_size > 1:
        deviations /= groups.std(axis=1, ddof=1, keepdims=True) + 1e-6
    return deviations.ravel()


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_gae_gives_tunix_numbers(dtype: str) -> None:
    cases, arrays = load("tunix")
    found = [c for c in cases if c["name"].startswith("adv/gae/") and c["name"].endswith(dtype)]
    assert found
    with jax.enable_x64(dtype == "float64"):
        for case in found:
            inputs = {name: arrays[key] for name, key in case["inputs"].items()}
            mask = inputs["completion_mask"] > 0
            fields = {"token_rewards": inputs["rewards"], "values": inputs["values"], "mask": mask}
            gamma, lam = case["config"]["gamma"], case["config"]["gae_lambda"]
            advantages, returns = estimate("gae", fields, gamma=gamma, lam=lam)
            expected = {name: np.where(mask, arrays[key], 0) for name, key in case["outputs"].items()}
            if mask.sum() == 1 and dtype == "float32":
                assert np.isnan(expected["advantages"]).all(), ONE_TOKEN
                expected["advantages"] = np.zeros(mask.shape)
            whitened: dict[str, Any] = (
                {"rtol": 1e-7, "atol": 1e-8} if dtype == "float64" else TOLERANCE[dtype]
            )  # TOKEN_COUNT
            np.testing.assert_allclose(returns, expected["returns"], **TOLERANCE[dtype], err_msg=case["name"])
            np.testing.assert_allclose(advantages, expected["advantages"], **whitened, err_msg=case["name"])


TRL_CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("adv/sum_then_normalize/group", "grpo", {"epsilon": 1e-4}),
    ("adv/sum_then_normalize/batch", "grpo", {"epsilon": 1e-4, "scale": "batch"}),
    ("adv/sum_then_normalize/batch/weights", "grpo", {"epsilon": 1e-4, "scale": "batch"}),
    ("rloo_adv/beta0/plain", "rloo", {}),
]


@pytest.mark.parametrize(("case", "name", "params"), TRL_CASES)
def test_baseline_methods_give_trls_numbers(case: str, name: str, params: dict[str, Any]) -> None:
    """The comparison begins with the table of rewards and includes abstentions.

    TRL leaves a completion on which every reward abstained out of its group; Dovetail does so if its mask is empty.
    """
    cases, arrays = load("trl")
    (golden,) = [c for c in cases if c["name"] == case]
    table = arrays[golden["rewards"]]
    weights = golden["config"].get("reward_weights")
    manager = dovetail.get("reward_manager", "weighted_sum").bind(
        weights=dict(zip("ab", weights, strict=True)) if weights else None
    )
    scores = manager(table, ("a", "b")).astype(np.float32)
    _, group_ids, _ = in_groups_of(golden["num_generations"], scores)
    judged = np.asarray(~np.isnan(table).all(axis=1, keepdims=True))
    assert not judged.all()
    (ours,) = in_one_batch(name, [(scores, group_ids, judged)], **params)
    np.testing.assert_allclose(ours[:, 0], arrays[f"{case}/advantages"], **TOLERANCE["float32"])


EQUAL_SCORES = {
    "adv/misc/allzero_grpo": ("grpo", 0.0, ""),
    "adv/misc/allzero_reinforce_plus_plus_baseline": ("reinforce_plus_plus_baseline", 0.0, ""),
    "adv/misc/lowvar_grpo_vectorized": (
        "grpo",
        1e-3,
        "for scores that differ only slightly, verl's results contain the rounding error of their float32 mean",
    ),
}


@pytest.mark.parametrize("case", EQUAL_SCORES)
def test_equal_and_nearly_equal_scores(case: str) -> None:
    name, tolerance, _ = EQUAL_SCORES[case]
    cases, arrays = load("verl")
    (golden,) = [c for c in cases if c["id"] == case]
    inputs = {key: arrays[at] for key, at in golden["inputs"].items()}
    fields = {
        "scores": inputs["token_level_rewards"].sum(axis=1),
        "group_ids": np.unique(inputs["index"], return_inverse=True)[1].astype(np.int32),
        "mask": inputs["response_mask"] > 0,
    }
    (advantages,) = estimate(name, fields)
    np.testing.assert_allclose(advantages, arrays[golden["outputs"]["advantages"]], rtol=0, atol=tolerance)
