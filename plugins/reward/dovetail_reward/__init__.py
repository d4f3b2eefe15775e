"""Dovetail's built-in rewards, the manager that adds them up, and reward shaping. Nothing here imports jax."""

from __future__ import annotations

from collections.abc import Callable

from dovetail.hookspecs import hookimpl


@hookimpl
def dovetail_components(register: Callable[..., None]) -> None:
    """Register the components of this package."""

    def add(kind: str, name: str, attribute: str = "", aliases: tuple[str, ...] = ()) -> None:
        register(kind, name, f"dovetail_reward.{kind}.{name}:{attribute or name}", aliases=aliases)

    add("answer", "boxed")
    add("answer", "last_number")
    add("answer", "tagged")
    add("field", "mean_hidden_states")
    add("process_reward", "equations")
    add("reward", "check_answer")
    add("reward", "check_numbers")
    add("reward", "close_answer")
    add("reward", "code", "Code", aliases=("prime_code",))
    add("reward", "compute_score", "ComputeScore", aliases=("custom_reward_function",))
    add("reward", "exact_match")
    add("reward", "exact_match_qa", aliases=("search_r1",))
    add("reward", "f1_qa")
    add("reward", "functions", "Functions", aliases=("reward_funcs",))
    add("reward", "geo3k", "Geo3k")
    add("reward", "gsm8k")
    add("reward", "match_format_approximately")
    add("reward", "match_format_exactly")
    add("reward", "math", "hendrycks_math", aliases=("hendrycks_math",))
    add("reward", "math_dapo", aliases=("aime",))
    add("reward", "math_verify", "MathVerify", aliases=("prime_math",))
    add("reward", "model", "RewardModel", aliases=("reward_model",))
    add("reward", "recorded", "Recorded")
    add("reward", "relative_length", aliases=("len_reward",))
    add("reward", "remote", "Remote")
    add("reward", "repetition", aliases=("repetition_penalty",))
    add("reward", "rlla", aliases=("toolrl",))
    add("reward", "think_format", aliases=("think_format_reward",))
    add("reward_manager", "weighted_sum", "WeightedSum", aliases=("sequence_level", "naive"))
    add("reward_shaping", "cosine_length", aliases=("cosine_scaled_reward",))
    add("reward_shaping", "overlong", aliases=("dapo",))
    add("reward_shaping", "reference_quality")
    add("reward_shaping", "representation_alignment")
    add("reward_shaping", "tool_cosine", aliases=("otc",))
    add("reward_shaping", "turn_discount")
    add("reward_shaping", "turn_penalty")
