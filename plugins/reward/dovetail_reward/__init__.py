"""Dovetail's built-in rewards, the manager that adds them up, and reward shaping. Nothing here imports jax."""

from __future__ import annotations

from collections.abc import Callable

from dovetail.hookspecs import hookimpl


@hookimpl
def dovetail_components(register: Callable[..., None]) -> None:
    """Register the components of this package."""
    register("answer", "boxed", "dovetail_reward.answer.boxed:boxed")
    register("answer", "last_number", "dovetail_reward.answer.last_number:last_number")
    register("answer", "tagged", "dovetail_reward.answer.tagged:tagged")
    register("reward", "check_answer", "dovetail_reward.check_answer:check_answer")
    register("reward", "check_numbers", "dovetail_reward.check_numbers:check_numbers")
    register("reward", "close_answer", "dovetail_reward.close_answer:close_answer")
    register("reward", "code", "dovetail_reward.code:Code", aliases=("prime_code",))
    register(
        "reward",
        "compute_score",
        "dovetail_reward.compute_score:ComputeScore",
        aliases=("custom_reward_function",),
    )
    register("reward", "exact_match", "dovetail_reward.exact_match:exact_match")
    register("reward", "exact_match_qa", "dovetail_reward.exact_match_qa:exact_match_qa", aliases=("search_r1",))
    register("reward", "f1_qa", "dovetail_reward.f1_qa:f1_qa")
    register("reward", "geo3k", "dovetail_reward.geo3k:Geo3k")
    register("reward", "gsm8k", "dovetail_reward.gsm8k:gsm8k")
    register(
        "reward",
        "match_format_approximately",
        "dovetail_reward.match_format_approximately:match_format_approximately",
    )
    register("reward", "match_format_exactly", "dovetail_reward.match_format_exactly:match_format_exactly")
    register("reward", "math", "dovetail_reward.hendrycks_math:hendrycks_math", aliases=("hendrycks_math",))
    register("reward", "math_dapo", "dovetail_reward.math_dapo:math_dapo", aliases=("aime",))
    register("reward", "math_verify", "dovetail_reward.math_verify:MathVerify", aliases=("prime_math",))
    register("reward", "model", "dovetail_reward.reward_model:RewardModel", aliases=("reward_model",))
    register("reward", "remote", "dovetail_reward.remote:Remote")
    register("reward", "rlla", "dovetail_reward.rlla:rlla", aliases=("toolrl",))
    register(
        "reward_manager",
        "weighted_sum",
        "dovetail_reward.weighted_sum:WeightedSum",
        aliases=("sequence_level", "naive"),
    )
    register("field", "mean_hidden_states", "dovetail_reward.mean_hidden_states:mean_hidden_states")
    register("reward_shaping", "overlong", "dovetail_reward.overlong:overlong", aliases=("dapo",))
    register("reward_shaping", "reference_quality", "dovetail_reward.reference_quality:reference_quality")
    register(
        "reward_shaping",
        "representation_alignment",
        "dovetail_reward.representation_alignment:representation_alignment",
    )
