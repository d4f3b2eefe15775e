"""The fields and hyperparameters of each estimator, whose names configurations and other plugins rely on."""

from __future__ import annotations

import pytest

import dovetail

BY_SCORE = ("scores", "group_ids", "mask")
OTB = ("token_rewards", "old_logps", "old_sum_pi_squared", "group_ids", "mask")
OTB_CORRECTED = ("token_rewards", "old_logps", "old_sum_pi_squared", "is_weights", "group_ids", "mask")
CRITIC = ("token_rewards", "values", "mask")
CRITIC_BY_TURN = ("token_rewards", "values", "turns", "mask")
BY_TURN = ("token_rewards", "turns", "group_ids", "mask")

INTERFACES = {
    "bi_level_gae": (CRITIC_BY_TURN, {"turn_gamma": 0.95, "gamma": 1.0, "lam": 1.0, "whiten": True}),
    "decoupled_gae": (CRITIC, {"gamma": 1.0, "lam": 0.95, "critic_lam": 1.0, "whiten": True}),
    "dr_grpo": (BY_SCORE, {}),
    "gae": (CRITIC, {"gamma": 1.0, "lam": 0.95, "whiten": True}),
    "gdpo": (
        ("score_table", "group_ids", "mask"),
        {"weights": None, "scale": "group", "epsilon": 1e-6, "over": "tokens"},
    ),
    "gigpo": (
        ("scores", "token_rewards", "turns", "anchor_ids", "group_ids", "mask"),
        {"gamma": 0.95, "step_weight": 1.0, "scale": "none", "epsilon": 1e-6},
    ),
    "gpg": (BY_SCORE, {"f_norm": 1.0, "count": "varied"}),
    "grpo": (BY_SCORE, {"scale": "group", "epsilon": 1e-6}),
    "grpo_leave_one_out": (BY_SCORE, {"epsilon": 1e-6}),
    "grpo_passk": (BY_SCORE, {"scale": "group", "epsilon": 1e-6}),
    "length_adaptive_gae": (CRITIC, {"gamma": 1.0, "alpha": 0.05, "critic_lam": 1.0, "whiten": True}),
    "maxrl": (BY_SCORE, {}),
    "mt_grpo": (
        ("scores", "turn_rewards", "turn_mask", "turns", "group_ids", "mask"),
        {"turn_weight": 1.0, "scale": "group", "epsilon": 1e-6},
    ),
    "opo": (BY_SCORE, {}),
    "optimal_token_baseline": (OTB, {"handle_zero_tail": False, "epsilon": 1e-8}),
    "optimal_token_baseline_corrected": (OTB_CORRECTED, {"handle_zero_tail": False, "epsilon": 1e-8}),
    "rae": (("state", "scores", "role_ids", "mask"), {"decay": 0.95, "per": "completion"}),
    "reinforce": (("token_rewards", "mask"), {"gamma": 1.0}),
    "reinforce_plus_plus": (("token_rewards", "mask"), {"gamma": 1.0}),
    "reinforce_plus_plus_baseline": (BY_SCORE, {}),
    "remax": (("token_rewards", "greedy_scores", "mask"), {}),
    "rloo": (BY_SCORE, {}),
    "tir_optimal_token_baseline": (OTB, {"handle_zero_tail": True, "epsilon": 1e-8}),
    "tir_optimal_token_baseline_corrected": (OTB_CORRECTED, {"handle_zero_tail": True, "epsilon": 1e-8}),
    "turn_gae": (CRITIC_BY_TURN, {"gamma": 0.99, "lam": 0.9, "whiten": True}),
    "turn_returns": (BY_TURN, {"gamma": 1.0, "scale": "group", "epsilon": 1e-6}),
    "turn_rloo": (BY_TURN, {"gamma": 1.0, "ended": "last"}),
}
TRACED = {
    "alpha",
    "critic_lam",
    "decay",
    "epsilon",
    "f_norm",
    "gamma",
    "lam",
    "step_weight",
    "turn_gamma",
    "turn_weight",
}
"""Hyperparameters in which the trials of a sweep may differ and still share one executable."""


def test_every_name_is_here():
    ours = {
        name
        for name in dovetail.names("advantage")
        if dovetail.get("advantage", name).origin.distribution == "dovetail"
    }
    assert ours == set(INTERFACES)


@pytest.mark.parametrize("name", INTERFACES)
def test_reads_and_parameters(name):
    component = dovetail.get("advantage", name)
    reads, params = INTERFACES[name]
    assert component.reads == reads
    assert dict(component.params) == params
    assert component.static == set(params) - TRACED


@pytest.mark.parametrize(
    ("alias", "name"),
    [("drgrpo", "dr_grpo"), ("dr-grpo", "dr_grpo"), ("hierarchical_grpo", "dr_grpo"), ("max_rl", "maxrl")],
)
def test_other_spellings(alias, name):
    assert dovetail.get("advantage", alias).name == name
