"""Estimators by turn against the released code of their papers; each difference has its reason beside it."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from tests.advantage.cases import TOLERANCE, Case, estimate
from tests.golden import Arrays, Fact, load

ALONE = "verl-agent gives a group of one its raw score"
BY_STEPS = "verl-agent counts an episode as often as it has turns, unless told otherwise"
LONE_TURN = "KernelGYM gives a turn that no other episode reaches its raw return; here zero"
OURS = {
    "compute_gigpo_outcome_advantage": "gigpo",
    "MTGRPOEnvTrainer._assign_advantages": "mt_grpo",
    "compute_grpo_outcome_advantage": "turn_returns",
    "compute_multi_turn_rloo_outcome_advantage": "turn_rloo",
    "no_concat_gae": "turn_gae",
    "compute_bi_level_gae_advantage_return": "bi_level_gae",
}
IN_FLOAT32 = ("gigpo", "mt_grpo", "bi_level_gae")
"""The estimators whose authors' code computes in float32, whatever the type of its input."""


def cases() -> list[tuple[Case, Arrays, Arrays]]:
    """Return (case, inputs, outputs)."""
    found, arrays = load("agents")
    mine = [case for case in found if case["function"] in OURS]
    return [
        (c, *({name: arrays[key] for name, key in c[side].items()} for side in ("inputs", "outputs"))) for c in mine
    ]


def params(case: Case) -> dict[str, Any]:
    """Translate the settings to Dovetail's."""
    config = case["config"]
    return {
        "gigpo": lambda: {
            "gamma": config["gamma"],
            "step_weight": config["step_advantage_w"],
            "scale": "group" if config["mode"] == "mean_std_norm" else "none",
            "epsilon": config["epsilon"],
        },
        "mt_grpo": lambda: {"turn_weight": config["turn_advantage_coef"], "epsilon": config["epsilon"]},
        "turn_returns": lambda: dict(config),
        "turn_rloo": lambda: {"gamma": config["gamma"], "ended": "out"},
        "turn_gae": lambda: {**config, "whiten": False},
        "bi_level_gae": lambda: {
            "gamma": config["gamma"],
            "turn_gamma": config["high_level_gamma"],
            "lam": config["lam"],
            "whiten": False,
        },
    }[OURS[case["function"]]]()


def apart(case: Case, inputs: Arrays) -> tuple[str, np.ndarray]:
    """Return why a case departs and at which tokens; no tokens if it does not depart."""
    mask, ids = inputs["mask"], inputs.get("group_ids", np.zeros(len(inputs["mask"])))
    if case["config"].get("compute_mean_std_cross_steps"):
        return BY_STEPS, mask
    if case["function"] == "compute_gigpo_outcome_advantage":
        alone = mask & (np.sum(ids[:, None] == ids[None, :], axis=1) == 1)[:, None]
        return (ALONE, alone) if alone.any() else ("", alone)
    if case["function"] == "compute_multi_turn_rloo_outcome_advantage":
        turns = np.where(mask, inputs["turns"], -1).max(axis=1)
        others = (ids[:, None] == ids[None, :]) & ~np.eye(len(ids), dtype=bool)
        furthest = np.max(np.where(others, turns[None, :], -1), axis=1)
        lone = mask & (inputs["turns"] > furthest[:, None])
        return (LONE_TURN, lone) if lone.any() else ("", lone)
    return "", np.zeros_like(mask)


def facts() -> list[Fact]:
    """Return the cases of this file."""
    return [Fact("agents", f"{c['source']}, {c['function']}", c["id"], apart(c, x)[0]) for c, x, _ in cases()]


def per_token(by_turn: np.ndarray, inputs: Arrays) -> np.ndarray:
    """Give every token the value of its turn."""
    if by_turn.shape == inputs["mask"].shape:
        return by_turn
    return np.where(inputs["mask"], np.take_along_axis(by_turn, inputs["turns"], axis=1), 0)


@pytest.mark.parametrize("name", OURS.values())
def test_the_authors_numbers(name: str) -> None:
    compared = 0
    with jax.enable_x64(True):
        for case, inputs, outputs in cases():
            if OURS[case["function"]] != name:
                continue
            found = estimate(name, inputs, **params(case))
            why, where = apart(case, inputs)
            tolerance = TOLERANCE["float32" if name in IN_FLOAT32 else "float64"]
            expected = per_token(outputs["advantages"], inputs)
            same = inputs["mask"] & ~where
            np.testing.assert_allclose(found[0][same], expected[same], **tolerance, err_msg=case["id"])
            if why:
                assert not np.allclose(found[0][where], expected[where], atol=1e-4), f"{case['id']}: departs no more"
            if name.endswith("gae"):
                same = inputs["mask"]
                theirs = per_token(outputs["returns"], inputs)
                np.testing.assert_allclose(found[1][same], theirs[same], **tolerance, err_msg=case["id"])
            compared += 1
    assert compared
