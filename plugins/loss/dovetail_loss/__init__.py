"""Dovetail's built-in losses: policy and value losses, additional loss terms, aggregations, KL estimators, controllers
of the KL and entropy coefficients, off-policy corrections, loss masks, and fields that some of the losses read; and the
supervised warm start, with the loss of the next token.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dovetail.hookspecs import hookimpl
from dovetail_loss._ambiguous import SUM_NORM_SPELLINGS


@hookimpl
def dovetail_warm_start() -> Any:
    """Train on the demonstrations of the task."""
    from dovetail_loss.warm_start import warm_start

    return warm_start


@hookimpl
def dovetail_components(register: Callable[..., None]) -> None:  # noqa: PLR0915 (a list, one line each)
    """Register the components of this package."""

    def add(kind: str, name: str, attribute: str = "", aliases: tuple[str, ...] = ()) -> None:
        register(kind, name, f"dovetail_loss.{kind}.{name}:{attribute or name}", aliases=aliases)

    add("correction", "icepop")
    add("correction", "reject")
    add("correction", "sequence_mask", aliases=("mis",))
    add("correction", "sequence_mask_tis", aliases=("seq_mask_tis",))
    add("correction", "tis_geometric")
    add("correction", "tis_reject")
    add("correction", "tis_sequence", aliases=("sequence_truncate",))
    add("correction", "tis_token", aliases=("tis", "token_truncate"))
    add("correction", "token_veto")
    add("entropy_controller", "adaptive", "Adaptive")
    add("entropy_controller", "fixed", "Fixed")
    add("field", "clip_cov_tokens")
    add("field", "full_kl")
    add("field", "jensen_shannon")
    add("field", "kl_cov_tokens")
    add("field", "positive_weights")
    add("field", "second_moment_tokens")
    add("kl", "abs", "absolute")
    add("kl", "abs_plus")
    add("kl", "full")
    add("kl", "k1", aliases=("kl",))
    add("kl", "k1_plus", aliases=("kl_plus",))
    add("kl", "k2", aliases=("mse", "mse_kl", "k2_plus", "mse_plus"))
    add("kl", "k3", aliases=("low_var_kl",))
    add("kl", "k3_corrected")
    add("kl", "k3_plus", aliases=("low_var_kl_plus",))
    add("kl_controller", "adaptive", "Adaptive")
    add("kl_controller", "fixed", "Fixed")
    add("loss_agg", "prompt_mean")
    add("loss_agg", "sequence_mean_token_mean", aliases=("seq_mean_token_mean",))
    register(
        "loss_agg",
        "sequence_mean_token_scale",
        "dovetail_loss.loss_agg.sequence_mean_token_scale:sequence_mean_token_scale",
        aliases=("seq_mean_token_scale",),
        renamed=SUM_NORM_SPELLINGS,
    )
    add("loss_agg", "sequence_mean_token_sum", aliases=("seq_mean_token_sum",))
    add("loss_agg", "token_mean")
    add("loss_agg", "token_sum", aliases=("token_sum_norm",))
    add("loss_term", "dpo")
    add("loss_term", "echo")
    add("loss_term", "gkd")
    add("loss_term", "nll")
    add("loss_term", "orpo")
    add("loss_term", "preferred_nll")
    add("loss_term", "reverse_kl")
    add("loss_term", "simpo")
    add("policy_loss", "cispo")
    add("policy_loss", "clip_cov")
    add("policy_loss", "decoupled_ppo")
    add("policy_loss", "dppo_kl")
    add("policy_loss", "dppo_tv")
    add("policy_loss", "dro")
    add("policy_loss", "gmpo", aliases=("geo_mean",))
    add("policy_loss", "grpo")
    add("policy_loss", "gspo", aliases=("gspo_token",))
    add("policy_loss", "gspo_turn")
    add("policy_loss", "importance_sampling")
    add("policy_loss", "ipo")
    add("policy_loss", "kimi")
    add("policy_loss", "kl_cov")
    add("policy_loss", "luspo")
    add("policy_loss", "m2po")
    add("policy_loss", "ppo")
    add("policy_loss", "reinforce", aliases=("gpg",))
    add("policy_loss", "rloo")
    add("policy_loss", "rollout_is")
    add("policy_loss", "sapo")
    add("policy_loss", "topr")
    add("policy_loss", "vapo")
    add("policy_loss", "vespo")
    add("policy_loss", "zero")
    add("loss_mask", "drop_truncated", aliases=("overlong_filtering", "mask_truncated_completions"))
    add("loss_mask", "opsm")
    add("loss_mask", "pf_ppo")
    add("loss_mask", "top_entropy")
    add("value_loss", "mse")
    add("value_loss", "ppo")
