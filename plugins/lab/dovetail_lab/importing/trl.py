"""TRL's `GRPOConfig`, as of version 1.16: a script that makes one, or its settings as YAML or JSON.

A script that makes a `DPOConfig`, an `ORPOConfig` or a `CPOConfig` is read by `trl_preferences`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from dovetail_lab.importing import trl_preferences
from dovetail_lab.importing.reading import read
from dovetail_lab.importing.sheet import Sheet, translated
from dovetail_lab.importing.trl_training import REASONS, model, optimiser, reference, run, updates_of

CALLS: Final = {"GRPOConfig": "", "GRPOTrainer": "trainer.", "LoraConfig": "lora."}
"""Calls of a script whose arguments are settings, and what their names begin with."""

AGGREGATION: Final = {
    "grpo": "sequence_mean_token_mean",
    "sapo": "sequence_mean_token_mean",
    "luspo": "sequence_mean_token_sum",
    "dr_grpo": "sequence_mean_token_scale",
    "bnpo": "token_mean",
    "dapo": "token_mean",
    "cispo": "token_mean",
    "vespo": "token_mean",
}
"""TRL's `loss_type` chooses the loss and how it is averaged; this is the second."""
SAMPLER: Final = {
    "token_truncate": ("tis_token", {}),
    "sequence_truncate": ("tis_sequence", {}),
    "token_mask": ("icepop", {"lower": None}),
    "sequence_mask": ("sequence_mask", {"lower": None, "count_rejected": True}),
}
"""`vllm_importance_sampling_mode`: our correction, and those of its parameters that TRL has otherwise."""


def translate(path: Path) -> Sheet:
    """Return the translation of a file.

    Raises:
        ConfigError: if it has no settings.
    """
    kind = trl_preferences.kind_of(path)
    if kind not in (None, "GRPO"):
        return trl_preferences.translate(path, kind)
    calls = CALLS if kind else trl_preferences.calls()  # all of them, for the message that none is there
    return translated("TRL", read(path, calls), _fill, REASONS)


def _fill(sheet: Sheet) -> None:
    sheet.heading("The loss. TRL's loss_type chooses a loss and how it is averaged; here these are two settings.")
    _loss(sheet)
    sheet.heading("Advantages and the reference")
    _advantages(sheet)
    sheet.heading("The sizes of a step, in completions")
    _sizes(sheet)
    sheet.heading("Sampling")
    _sampling(sheet)
    sheet.heading("The optimiser")
    optimiser(sheet)
    sheet.heading("The run")
    run(sheet)
    sheet.heading("The model")
    model(sheet)
    sheet.heading("To fill in: without these lines it would train something else")
    sheet.choose("train.task", r"trainer\..*dataset|dataset_name", "TRL's script chooses the data")
    sheet.choose("train.rewards", r"trainer\.reward_funcs|reward_funcs", "TRL's script chooses the rewards")
    prompts = next(line.value for line in sheet.lines if line.target == "train.prompts")
    epochs = sheet.said("num_train_epochs", 3.0)
    sheet.choose("train.steps", "(?!)", f"{epochs}: epochs x prompts of the data / {prompts} (train.prompts)")


def _loss(sheet: Sheet) -> None:
    kind = sheet.value("loss_type", "dapo")
    said = sheet.said("loss_type", "dapo")
    if kind not in AGGREGATION:
        sheet.leave("loss_type", "there is no such loss")
        kind, said = "dapo", "loss_type = 'dapo', TRL's default"
    by_sequence = sheet.value("importance_sampling_level", "token") == "sequence"
    own = ("sapo", "vespo", "cispo", "luspo") if by_sequence else ("sapo", "vespo", "cispo")
    name = kind if kind in own else "grpo"
    if kind == "luspo" and not by_sequence:
        said += "; its ratio is that of each token, unless importance_sampling_level = 'sequence'"
    sheet.put("train.policy_loss", name, said)
    sheet.put("train.loss_agg", AGGREGATION[kind], said)
    if kind == "dr_grpo":
        sheet.carry("max_completion_length", "loss_agg.sequence_mean_token_scale.normalizer", 512, float)
    _range(sheet, name)
    if name == "vespo":
        sheet.leave("importance_sampling_level", "vespo has a weight of its own for each completion")
    elif name != "luspo":
        _level(sheet, name)
    if name == "sapo":
        sheet.carry("sapo_temperature_pos", "policy_loss.sapo.tau_pos", 1.0)
        sheet.carry("sapo_temperature_neg", "policy_loss.sapo.tau_neg", 1.05)
    if name == "vespo":
        for parameter in ("k_pos", "lambda_pos", "k_neg", "lambda_neg"):
            sheet.carry(f"vespo_{parameter}", f"policy_loss.vespo.{parameter}")
    masks = _masks(sheet)
    if masks:
        sheet.put("train.loss_mask", list(masks), "; ".join(map(sheet.said, masks.values())))


def _level(sheet: Sheet, name: str) -> None:
    level = sheet.value("importance_sampling_level", "token")
    if level == "sequence":
        sheet.carry("importance_sampling_level", f"policy_loss.{name}.level")
    elif level != "token":
        sheet.leave("importance_sampling_level", "there is no such level; the ratio here is that of each token")


def _range(sheet: Sheet, name: str) -> None:
    """What the ratio is clipped to."""
    low = sheet.value("epsilon", 0.2)
    high = sheet.value("epsilon_high", None)
    said = sheet.said("epsilon_high") if high is not None else f"{sheet.said('epsilon', 0.2)}; epsilon_high is not set"
    high = low if high is None else high
    if name == "cispo":
        sheet.put("policy_loss.cispo.max_ratio", float(high), f"{said}; TRL bounds the ratio itself by it")
    elif name in ("grpo", "luspo"):
        sheet.put(f"policy_loss.{name}.epsilon_low", low, sheet.said("epsilon", 0.2))
        sheet.put(f"policy_loss.{name}.epsilon_high", float(high), said)
    if name == "grpo" and sheet.value("delta") is not None:
        sheet.carry("delta", "policy_loss.grpo.clip_c")


def _masks(sheet: Sheet) -> dict[str, str]:
    """Return the masks, with the setting of each."""
    found: dict[str, str] = {}
    if sheet.value("mask_truncated_completions", False):
        found["drop_truncated"] = "mask_truncated_completions"
    if sheet.value("top_entropy_quantile", 1.0) < 1.0:
        found["top_entropy"] = "top_entropy_quantile"
        sheet.carry("top_entropy_quantile", "loss_mask.top_entropy.fraction")
    if sheet.value("off_policy_mask_threshold") is not None:
        found["opsm"] = "off_policy_mask_threshold"
        sheet.carry("off_policy_mask_threshold", "loss_mask.opsm.threshold")
    return found


def _advantages(sheet: Sheet) -> None:
    summed = sheet.value("multi_objective_aggregation", "sum_then_normalize") == "sum_then_normalize"
    scale = {True: "group", False: "none"}.get(scaled := sheet.value("scale_rewards", "group"), scaled)
    sheet.put(
        "train.advantage", "grpo" if summed else "gdpo", sheet.said("multi_objective_aggregation", "sum_then_normalize")
    )
    if summed:
        sheet.put(
            "advantage.grpo.scale", scale, f"{sheet.said('scale_rewards', 'group')}; loss_type does not change it"
        )
        sheet.put("advantage.grpo.epsilon", 1e-4, "TRL adds this to the deviation")
    else:
        sheet.put("advantage.gdpo.over", "completions")
        sheet.put("advantage.gdpo.epsilon", 1e-4, "TRL adds this to the deviation")
    weights = sheet.value("reward_weights")
    if weights is not None and not summed:
        sheet.put("advantage.gdpo.weights", tuple(map(float, weights)), sheet.said("reward_weights"))
    elif weights is not None:
        own = f"reward.functions.weights = {tuple(map(float, weights))} for functions of a file"
        sheet.leave(
            "reward_weights", f"{own}; weights are by name here: reward_manager.weighted_sum.weights for others"
        )
    if "trainer.reward_funcs" in sheet.given:
        names = re.findall(r"\w+", str(sheet.given["trainer.reward_funcs"].value))
        why = (
            f"train.rewards = ['functions'], reward.functions.path = THEIR_FILE, reward.functions.name = {tuple(names)}"
        )
        sheet.leave("trainer.reward_funcs", why)
    sheet.carry("beta", "train.kl_coef", 0.0)
    corrected = "use_bias_correction_kl"
    note = "" if sheet.has(corrected) else "; in TRL 1.9 it was False"
    kind = "k3_corrected" if sheet.value(corrected, True) else "k3"
    sheet.put("train.kl", kind, sheet.said(corrected, True) + note)
    reference(sheet)
    sheet.carry("entropy_coef", "train.entropy_coef")
    if sheet.value("use_adaptive_entropy", False):
        sheet.put("train.entropy_controller", "adaptive", sheet.said("use_adaptive_entropy"))
        sheet.carry("entropy_target", "entropy_controller.adaptive.target", 0.2)
        sheet.carry("entropy_coef_delta", "entropy_controller.adaptive.step_size", 0.005)
        for bound in ("entropy_coef_min", "entropy_coef_max"):
            sheet.leave(bound, "the coefficient is kept above 0, and has no other bound")


def _sizes(sheet: Sheet) -> None:
    """One step here is one generation there: its completions, and the updates made from them."""
    device, accumulated = sheet.value("per_device_train_batch_size", 8), sheet.value("gradient_accumulation_steps", 1)
    group, epochs = sheet.value("num_generations", 8), sheet.value("num_iterations", 1)
    per_step = sheet.value("steps_per_generation") or accumulated
    generated = sheet.value("generation_batch_size") or device * per_step
    update = min(device * accumulated, generated)
    said = f"{sheet.said('per_device_train_batch_size', 8)}, on one device"
    sheet.put("train.group_size", group, sheet.said("num_generations", 8))
    sheet.put("train.prompts", max(1, generated // group), f"{generated} completions in a generation; {said}")
    sheet.put("train.mini_batch_size", update, sheet.said("gradient_accumulation_steps", 1))
    sheet.put("train.micro_batch_size", device, said)
    sheet.put("train.epochs", epochs, sheet.said("num_iterations", 1))
    steps = sheet.value("max_steps", -1)
    if steps > 0:
        updates = updates_of(sheet)
        note = f"; {updates} updates for each generation" if updates > 1 else ""
        sheet.put("train.steps", -(-steps // updates), sheet.said("max_steps") + note)
        sheet.leave("num_train_epochs", "max_steps overrides it")
    else:
        sheet.leave("num_train_epochs", "train.steps = epochs x prompts of the data / train.prompts")


def _sampling(sheet: Sheet) -> None:
    sheet.carry("temperature", "sampling.temperature", 1.0)
    sheet.carry("max_completion_length", "sampling.max_tokens", 512)
    sheet.carry("max_prompt_length", "train.max_prompt_tokens", note="TRL cuts longer ones")
    if sheet.has("max_prompt_length"):
        sheet.put("train.long_prompts", "truncate")
    cut = sheet.cuts({"top_k": (0, -1, None), "top_p": (1.0, None), "min_p": (0.0, None)})
    if not sheet.value("use_vllm", False):
        return
    sheet.put("train.rollout", "vllm", sheet.said("use_vllm"))
    if sheet.value("vllm_mode", "colocate") == "server":
        sheet.carry(
            "vllm_server_base_url", "rollout.vllm.url", note="TRL's own server does not do; see docs/engines.md"
        )
    _correction(sheet, cut=cut)


def _correction(sheet: Sheet, *, cut: bool) -> None:
    """TRL corrects for vLLM unless told not to."""
    if not sheet.value("vllm_importance_sampling_correction", True):
        return
    mode = sheet.value("vllm_importance_sampling_mode", "sequence_mask")
    said = sheet.said("vllm_importance_sampling_mode", "sequence_mask")
    if cut or mode not in SAMPLER:
        why = (
            "vLLM reports probabilities over what the cut leaves, which are not the trainer's"
            if cut
            else "no such mode"
        )
        for name in ("correction", "mode", "clip_max", "clip_min", "cap"):
            sheet.leave(f"vllm_importance_sampling_{name}", why)
        return
    name, otherwise = SAMPLER[mode]
    sheet.put("train.correction", [name], said)
    upper = "vllm_importance_sampling_clip_max"
    upper = "vllm_importance_sampling_cap" if sheet.has("vllm_importance_sampling_cap") else upper
    sheet.bound(upper, f"correction.{name}.upper", 3.0)
    lower = sheet.value("vllm_importance_sampling_clip_min")
    for parameter, value in otherwise.items():
        sheet.put(f"correction.{name}.{parameter}", lower if parameter == "lower" and lower else value)
    if lower and "lower" not in otherwise:
        sheet.leave("vllm_importance_sampling_clip_min", f"correction '{name}' has no lower bound")
