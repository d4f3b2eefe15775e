"""Dovetail's built-in losses: policy and value losses, aggregations, KL estimators, controllers of the KL and of the
entropy coefficient, off-policy corrections, selections of what is learnt from, and fields that some of the losses read.

Policy losses lie beside this file, every other kind in the folder of its name. What the components of a kind
share (casts, masks, bounds) is in the modules with a leading underscore.
"""

from __future__ import annotations

from collections.abc import Callable

from dovetail.hookspecs import hookimpl

Register = Callable[..., None]


@hookimpl
def dovetail_components(register: Register) -> None:
    """Register the components of this package."""
    _policy_losses(register)
    _fields(register)
    _value_losses(register)
    _aggregations(register)
    _kl_estimators(register)
    _controllers(register)
    _corrections(register)
    _selections(register)


def _policy_losses(register: Register) -> None:
    register("policy_loss", "cispo", "dovetail_loss.cispo:cispo")
    register("policy_loss", "clip_cov", "dovetail_loss.clip_cov:clip_cov")
    register("policy_loss", "decoupled_ppo", "dovetail_loss.decoupled_ppo:decoupled_ppo")
    register("policy_loss", "dppo_kl", "dovetail_loss.dppo_kl:dppo_kl")
    register("policy_loss", "dppo_tv", "dovetail_loss.dppo_tv:dppo_tv")
    register("policy_loss", "dro", "dovetail_loss.dro:dro")
    register("policy_loss", "gmpo", "dovetail_loss.gmpo:gmpo", aliases=("geo_mean",))
    register("policy_loss", "grpo", "dovetail_loss.grpo:grpo")
    register("policy_loss", "gspo", "dovetail_loss.gspo:gspo", aliases=("gspo_token",))
    register("policy_loss", "importance_sampling", "dovetail_loss.importance_sampling:importance_sampling")
    register("policy_loss", "ipo", "dovetail_loss.ipo:ipo")
    register("policy_loss", "kimi", "dovetail_loss.kimi:kimi")
    register("policy_loss", "kl_cov", "dovetail_loss.kl_cov:kl_cov")
    register("policy_loss", "luspo", "dovetail_loss.luspo:luspo")
    register("policy_loss", "m2po", "dovetail_loss.m2po:m2po")
    register("policy_loss", "ppo", "dovetail_loss.ppo:ppo")
    register("policy_loss", "reinforce", "dovetail_loss.reinforce:reinforce", aliases=("gpg",))
    register("policy_loss", "rloo", "dovetail_loss.rloo:rloo")
    register("policy_loss", "rollout_is", "dovetail_loss.rollout_is:rollout_is")
    register("policy_loss", "sapo", "dovetail_loss.sapo:sapo")
    register("policy_loss", "topr", "dovetail_loss.topr:topr")
    register("policy_loss", "vapo", "dovetail_loss.vapo:vapo")
    register("policy_loss", "vespo", "dovetail_loss.vespo:vespo")


def _fields(register: Register) -> None:
    register("field", "clip_cov_tokens", "dovetail_loss.field.clip_cov_tokens:clip_cov_tokens")
    register("field", "full_kl", "dovetail_loss.kl.full:full_kl")
    register("field", "kl_cov_tokens", "dovetail_loss.field.kl_cov_tokens:kl_cov_tokens")
    register("field", "positive_weights", "dovetail_loss.field.positive_weights:positive_weights")
    register("field", "second_moment_tokens", "dovetail_loss.field.second_moment_tokens:second_moment_tokens")


def _value_losses(register: Register) -> None:
    register("value_loss", "mse", "dovetail_loss.value_loss.mse:mse")
    register("value_loss", "ppo", "dovetail_loss.value_loss.ppo:ppo")


def _aggregations(register: Register) -> None:
    register("loss_agg", "prompt_mean", "dovetail_loss.loss_agg.prompt_mean:prompt_mean")
    register("loss_agg", "token_mean", "dovetail_loss.loss_agg.token_mean:token_mean")
    register("loss_agg", "token_sum", "dovetail_loss.loss_agg.token_sum:token_sum", aliases=("token_sum_norm",))
    register(
        "loss_agg",
        "sequence_mean_token_mean",
        "dovetail_loss.loss_agg.sequence_mean_token_mean:sequence_mean_token_mean",
        aliases=("seq_mean_token_mean",),
    )
    register(
        "loss_agg",
        "sequence_mean_token_sum",
        "dovetail_loss.loss_agg.sequence_mean_token_sum:sequence_mean_token_sum",
        aliases=("seq_mean_token_sum",),
    )
    register(
        "loss_agg",
        "sequence_mean_token_sum_norm",
        "dovetail_loss.loss_agg.sequence_mean_token_sum_norm:sequence_mean_token_sum_norm",
    )
    register(
        "loss_agg",
        "sequence_mean_token_scale",
        "dovetail_loss.loss_agg.sequence_mean_token_scale:sequence_mean_token_scale",
        aliases=("seq_mean_token_sum_norm",),
    )


def _kl_estimators(register: Register) -> None:
    register("kl", "abs", "dovetail_loss.kl.abs:absolute")
    register("kl", "abs_plus", "dovetail_loss.kl.abs_plus:abs_plus")
    register("kl", "full", "dovetail_loss.kl.full:full")
    register("kl", "k1", "dovetail_loss.kl.k1:k1", aliases=("kl",))
    register("kl", "k1_plus", "dovetail_loss.kl.k1_plus:k1_plus", aliases=("kl_plus",))
    register("kl", "k2", "dovetail_loss.kl.k2:k2", aliases=("mse", "mse_kl", "k2_plus", "mse_plus"))
    register("kl", "k3", "dovetail_loss.kl.k3:k3", aliases=("low_var_kl",))
    register("kl", "k3_corrected", "dovetail_loss.kl.k3_corrected:k3_corrected")
    register("kl", "k3_plus", "dovetail_loss.kl.k3_plus:k3_plus", aliases=("low_var_kl_plus",))


def _controllers(register: Register) -> None:
    register("entropy_controller", "adaptive", "dovetail_loss.entropy_controller.adaptive:Adaptive")
    register("entropy_controller", "fixed", "dovetail_loss.kl_controller.fixed:Fixed")
    register("kl_controller", "adaptive", "dovetail_loss.kl_controller.adaptive:Adaptive")
    register("kl_controller", "fixed", "dovetail_loss.kl_controller.fixed:Fixed")


def _corrections(register: Register) -> None:
    register("correction", "icepop", "dovetail_loss.correction.icepop:icepop")
    register("correction", "reject", "dovetail_loss.correction.reject:reject")
    register("correction", "sequence_mask", "dovetail_loss.correction.sequence_mask:sequence_mask", aliases=("mis",))
    register(
        "correction",
        "sequence_mask_tis",
        "dovetail_loss.correction.sequence_mask_tis:sequence_mask_tis",
        aliases=("seq_mask_tis",),
    )
    register("correction", "tis_geometric", "dovetail_loss.correction.tis_geometric:tis_geometric")
    register("correction", "tis_reject", "dovetail_loss.correction.tis_reject:tis_reject")
    register(
        "correction",
        "tis_sequence",
        "dovetail_loss.correction.tis_sequence:tis_sequence",
        aliases=("sequence_truncate",),
    )
    register(
        "correction", "tis_token", "dovetail_loss.correction.tis_token:tis_token", aliases=("tis", "token_truncate")
    )
    register("correction", "token_veto", "dovetail_loss.correction.token_veto:token_veto")


def _selections(register: Register) -> None:
    register(
        "loss_mask",
        "drop_truncated",
        "dovetail_loss.selection.drop_truncated:drop_truncated",
        aliases=("overlong_filtering", "mask_truncated_completions"),
    )
    register("loss_mask", "opsm", "dovetail_loss.selection.opsm:opsm")
    register("loss_mask", "pf_ppo", "dovetail_loss.selection.pf_ppo:pf_ppo")
    register("loss_mask", "top_entropy", "dovetail_loss.selection.top_entropy:top_entropy")
