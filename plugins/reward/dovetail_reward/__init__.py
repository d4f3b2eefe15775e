"""Dovetail's built-in rewards, and the manager that adds them up. Nothing here imports jax."""

from __future__ import annotations

from collections.abc import Callable

from dovetail.hookspecs import hookimpl


@hookimpl
def dovetail_components(register: Callable[..., None]) -> None:
    """Register the components of this package."""
    register("reward", "check_answer", "dovetail_reward.check_answer:check_answer")
    register("reward", "check_numbers", "dovetail_reward.check_numbers:check_numbers")
    register("reward", "exact_match", "dovetail_reward.exact_match:exact_match")
    register(
        "reward",
        "match_format_approximately",
        "dovetail_reward.match_format_approximately:match_format_approximately",
    )
    register("reward", "match_format_exactly", "dovetail_reward.match_format_exactly:match_format_exactly")
    register("reward_manager", "weighted_sum", "dovetail_reward.weighted_sum:WeightedSum")
