"""Dovetail's built-in losses: policy and value losses, aggregations, KL estimators and their controllers.

Policy losses lie beside this file, every other kind in the folder of its name. What the components of a kind
share (casts, masks, bounds) is in the modules with a leading underscore.
"""

from __future__ import annotations

from collections.abc import Callable

from dovetail.hookspecs import hookimpl


@hookimpl
def dovetail_components(register: Callable[..., None]) -> None:
    """Register the components of this package."""
    register("policy_loss", "grpo", "dovetail_loss.grpo:grpo")
    register("policy_loss", "gspo", "dovetail_loss.gspo:gspo", aliases=("gspo_token",))
    register("policy_loss", "ppo", "dovetail_loss.ppo:ppo")

    register("value_loss", "mse", "dovetail_loss.value_loss.mse:mse")
    register("value_loss", "ppo", "dovetail_loss.value_loss.ppo:ppo")

    register("loss_agg", "token_mean", "dovetail_loss.loss_agg.token_mean:token_mean")
    register("loss_agg", "token_sum", "dovetail_loss.loss_agg.token_sum:token_sum")
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
        aliases=("seq_mean_token_sum_norm", "sequence_mean_token_scale"),
    )

    register("kl", "abs", "dovetail_loss.kl.abs:absolute")
    register("kl", "abs_plus", "dovetail_loss.kl.abs_plus:abs_plus")
    register("kl", "k1", "dovetail_loss.kl.k1:k1", aliases=("kl",))
    register("kl", "k1_plus", "dovetail_loss.kl.k1_plus:k1_plus", aliases=("kl_plus",))
    register("kl", "k2", "dovetail_loss.kl.k2:k2", aliases=("mse", "mse_kl", "k2_plus", "mse_plus"))
    register("kl", "k3", "dovetail_loss.kl.k3:k3", aliases=("low_var_kl",))
    register("kl", "k3_plus", "dovetail_loss.kl.k3_plus:k3_plus", aliases=("low_var_kl_plus",))

    register("kl_controller", "adaptive", "dovetail_loss.kl_controller.adaptive:Adaptive")
    register("kl_controller", "fixed", "dovetail_loss.kl_controller.fixed:Fixed")
