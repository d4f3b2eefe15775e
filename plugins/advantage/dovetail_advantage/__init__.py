"""Dovetail's built-in advantage estimators, and the field that some of them read."""

from __future__ import annotations

from collections.abc import Callable

from dovetail.hookspecs import hookimpl


@hookimpl
def dovetail_components(register: Callable[..., None]) -> None:
    """Register the components of this package."""
    register("advantage", "decoupled_gae", "dovetail_advantage.decoupled_gae:decoupled_gae")
    register("advantage", "dr_grpo", "dovetail_advantage.dr_grpo:dr_grpo", aliases=("drgrpo", "hierarchical_grpo"))
    register("advantage", "gae", "dovetail_advantage.gae:gae")
    register("advantage", "gdpo", "dovetail_advantage.gdpo:gdpo")
    register("advantage", "gpg", "dovetail_advantage.gpg:gpg")
    register("advantage", "grpo", "dovetail_advantage.grpo:grpo")
    register("advantage", "grpo_leave_one_out", "dovetail_advantage.grpo_leave_one_out:grpo_leave_one_out")
    register("advantage", "grpo_passk", "dovetail_advantage.grpo_passk:grpo_passk")
    register("advantage", "length_adaptive_gae", "dovetail_advantage.length_adaptive_gae:length_adaptive_gae")
    register("advantage", "maxrl", "dovetail_advantage.maxrl:maxrl", aliases=("max_rl",))
    register("advantage", "opo", "dovetail_advantage.opo:opo")
    register("advantage", "optimal_token_baseline", "dovetail_advantage.optimal_token_baseline:optimal_token_baseline")
    register(
        "advantage",
        "optimal_token_baseline_corrected",
        "dovetail_advantage.optimal_token_baseline_corrected:optimal_token_baseline_corrected",
    )
    register("advantage", "rae", "dovetail_advantage.rae:RoleConditioned")
    register("advantage", "reinforce", "dovetail_advantage.reinforce:reinforce")
    register("advantage", "reinforce_plus_plus", "dovetail_advantage.reinforce_plus_plus:reinforce_plus_plus")
    register(
        "advantage",
        "reinforce_plus_plus_baseline",
        "dovetail_advantage.reinforce_plus_plus_baseline:reinforce_plus_plus_baseline",
    )
    register("advantage", "remax", "dovetail_advantage.remax:remax")
    register("advantage", "rloo", "dovetail_advantage.rloo:rloo")
    register(
        "advantage",
        "tir_optimal_token_baseline",
        "dovetail_advantage.tir_optimal_token_baseline:tir_optimal_token_baseline",
    )
    register(
        "advantage",
        "tir_optimal_token_baseline_corrected",
        "dovetail_advantage.tir_optimal_token_baseline_corrected:tir_optimal_token_baseline_corrected",
    )
    register("field", "sum_pi_squared", "dovetail_advantage.sum_pi_squared:sum_pi_squared")
    register("group_filter", "nonzero_variance", "dovetail_advantage.group_filter.nonzero_variance:nonzero_variance")
    register("group_filter", "pass_rate_band", "dovetail_advantage.group_filter.pass_rate_band:pass_rate_band")
