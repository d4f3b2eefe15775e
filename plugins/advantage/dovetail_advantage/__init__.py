"""Dovetail's built-in advantage estimators, group filters and completion filter, and a field that estimators read."""

from __future__ import annotations

from collections.abc import Callable

from dovetail.hookspecs import hookimpl


@hookimpl
def dovetail_components(register: Callable[..., None]) -> None:
    """Register the components of this package."""

    def add(kind: str, name: str, attribute: str = "", aliases: tuple[str, ...] = ()) -> None:
        register(kind, name, f"dovetail_advantage.{kind}.{name}:{attribute or name}", aliases=aliases)

    add("advantage", "bi_level_gae")
    add("advantage", "decoupled_gae")
    add("advantage", "dr_grpo", aliases=("drgrpo", "hierarchical_grpo"))
    add("advantage", "gae")
    add("advantage", "gdpo")
    add("advantage", "gigpo")
    add("advantage", "gpg")
    add("advantage", "grpo")
    add("advantage", "grpo_leave_one_out")
    add("advantage", "grpo_passk")
    add("advantage", "length_adaptive_gae")
    add("advantage", "maxrl", aliases=("max_rl",))
    add("advantage", "mt_grpo")
    add("advantage", "opo")
    add("advantage", "optimal_token_baseline")
    add("advantage", "optimal_token_baseline_corrected")
    add("advantage", "rae", "RoleConditioned")
    add("advantage", "reinforce")
    add("advantage", "reinforce_plus_plus")
    add("advantage", "reinforce_plus_plus_baseline")
    add("advantage", "remax")
    add("advantage", "rloo")
    add("advantage", "tir_optimal_token_baseline")
    add("advantage", "tir_optimal_token_baseline_corrected")
    add("advantage", "turn_gae")
    add("advantage", "turn_returns")
    add("advantage", "turn_rloo")
    add("completion_filter", "void_turns")
    add("field", "sum_pi_squared")
    add("group_filter", "nonzero_variance")
    add("group_filter", "pass_rate_band")
