"""TRL's `GRPOConfig`, as of version 1.16: a script that makes one, or its settings as YAML or JSON."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from dovetail_lab.importing.reading import modules_of, read
from dovetail_lab.importing.sheet import Sheet, translated

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

STEPS: Final = (
    "checkpoints and evaluations count steps: run.checkpoint_every, run.keep_checkpoints, run.keep_best, eval.every"
)

TYPES: Final = r"fp16|tf32|torch_dtype|dtype|cast_lm_head_to_fp32|model_init_kwargs|attn_implementation"
REASONS: Final = {
    r"trainer\.reward_funcs|trainer\..*dataset.*|dataset_.*": (
        "set train.task and train.rewards: task.records has records of a file, reward.functions functions of a file"
    ),
    r"trainer\.(args|peft_config|processing_class|callbacks|optimizers)": "an object of the script",
    r"output_dir|run_name|report_to|logging_.*|log_.*|num_completions_to_print|push_to_hub|hub_.*|project|trackio_.*": (
        "a run has a folder of its own (--folder) and logs all metrics there; run.sinks chooses where else"
    ),
    r"save_.*|load_best_model_at_end|metric_for_best_model|greater_is_better": STEPS,
    r"num_generations_eval": "eval.samples is the number of completions beside the greedy one",
    r"per_device_eval_batch_size": "eval.batch_size is the number of prompts completed at a time, on all devices",
    r"router_aux_loss_coef": "a mixture's own loss is a component of train.loss_terms (dovetail names loss_term)",
    r"lr_scheduler_kwargs": "a schedule's hyperparameters are lr_schedule.NAME.*",
    TYPES: ("types are model.pretrained.dtype and model.pretrained.param_dtype, float32 or bfloat16"),
    r"deepspeed|fsdp.*|ds3_.*|ddp_.*|dataloader_.*|parallelism_config|local_rank": (
        "devices are mesh.fsdp, mesh.cp (of long rows, as cp_size and sp_size) and mesh.tp"
    ),
    r"vllm_.*": "vLLM's own settings go into rollout.vllm.flags (docs/engines.md)",
    r"remove_unused_columns|shuffle_dataset|disable_dropout|pad_to_multiple_of|use_liger_kernel|torch_.*|auto_find.*"
    r"|use_transformers_.*|transformers_.*|cache_implementation|trust_remote_code": "there is nothing to set",
    r"repetition_penalty|generation_kwargs|chat_template_kwargs": "sampling has temperature, top-k, top-p and min-p",
    r"max_tool_calling_iterations|(trainer\.)?(tools|environment.*|rollout_func)": (
        "set train.agent_loop (docs/agents.md)"
    ),
    r"max_staleness|max_inflight_tasks|queue_maxsize|weight_sync_steps": (
        "train.staleness = k samples at most k batches ahead, with a train.correction (docs/staleness.md)"
    ),
    r"token_budget": "train.packing and train.length_buckets spare padding",
    r"lora\.(task_type|bias|inference_mode)": "an adapter is of matrices only",
}
ADAPTER: Final = {
    "r": ("rank", int),
    "lora_alpha": ("alpha", float),
    "lora_dropout": ("dropout", float),
    "use_rslora": ("rank_stabilized", bool),
    "use_dora": ("weight_decomposed", bool),
}
"""The settings of an adapter: name here, and type."""


def translate(path: Path) -> Sheet:
    """Return the translation of a file.

    Raises:
        ConfigError: if it has no settings.
    """
    return translated("TRL", read(path, CALLS), _fill, REASONS)


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
    _optimiser(sheet)
    sheet.heading("The run")
    _run(sheet)
    sheet.heading("The model")
    _model(sheet)
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
    _reference(sheet)
    sheet.carry("entropy_coef", "train.entropy_coef")
    if sheet.value("use_adaptive_entropy", False):
        sheet.put("train.entropy_controller", "adaptive", sheet.said("use_adaptive_entropy"))
        sheet.carry("entropy_target", "entropy_controller.adaptive.target", 0.2)
        sheet.carry("entropy_coef_delta", "entropy_controller.adaptive.step_size", 0.005)
        for bound in ("entropy_coef_min", "entropy_coef_max"):
            sheet.leave(bound, "the coefficient is kept above 0, and has no other bound")


def _reference(sheet: Sheet) -> None:
    if not sheet.value("sync_ref_model", False):
        return
    alpha, every = sheet.value("ref_model_mixup_alpha", 0.6), sheet.value("ref_model_sync_steps", 512)
    if alpha == 1.0:
        sheet.put("roles.reference", "renewed", sheet.said("ref_model_mixup_alpha"))
        sheet.carry("ref_model_sync_steps", "reference/follower.renewed.every", 512)
    elif every == 1:
        sheet.put("roles.reference", "ema", sheet.said("ref_model_sync_steps"))
        sheet.put("reference/follower.ema.decay", 1.0 - alpha, sheet.said("ref_model_mixup_alpha", 0.6))
    else:
        why = "an average moves after every step (roles.reference = 'ema'), a copy every n steps ('renewed')"
        for name in ("sync_ref_model", "ref_model_mixup_alpha", "ref_model_sync_steps"):
            sheet.leave(name, why)


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
        updates = _updates(sheet)
        note = f"; {updates} updates for each generation" if updates > 1 else ""
        sheet.put("train.steps", -(-steps // updates), sheet.said("max_steps") + note)
        sheet.leave("num_train_epochs", "max_steps overrides it")
    else:
        sheet.leave("num_train_epochs", "train.steps = epochs x prompts of the data / train.prompts")


def _updates(sheet: Sheet) -> int:
    """Return the number of updates that TRL makes from one generation; its steps are updates, ours are generations."""
    device, accumulated = sheet.value("per_device_train_batch_size", 8), sheet.value("gradient_accumulation_steps", 1)
    generated = sheet.value("generation_batch_size") or device * (sheet.value("steps_per_generation") or accumulated)
    return max(1, generated // (device * accumulated)) * sheet.value("num_iterations", 1)


def _run(sheet: Sheet) -> None:
    """Checkpoints, evaluations and metrics; TRL counts updates."""
    updates = _updates(sheet)

    def steps(count: float) -> int:
        return max(1, round(count / updates))

    note = f"{updates} updates for each generation" if updates > 1 else ""
    saved, evaluated = sheet.value("save_strategy", "steps"), sheet.value("eval_strategy")
    if saved != "steps":
        sheet.leave("save_strategy", STEPS)
        sheet.leave("save_steps", f"it has no effect: save_strategy = {saved!r}")
    elif (sheet.value("save_steps") or 0) >= 1:
        sheet.carry("save_steps", "run.checkpoint_every", convert=steps, note=note)
    else:
        sheet.leave("save_steps", f"a share of all steps; {STEPS}")
    sheet.carry("save_total_limit", "run.keep_checkpoints", convert=int)
    if evaluated == "no":
        sheet.put("eval.every", None, sheet.said("eval_strategy"))
        sheet.leave("eval_steps", "it has no effect: eval_strategy = 'no'")
    elif evaluated in ("steps", None) and (sheet.value("eval_steps") or 0) >= 1:
        sheet.carry("eval_steps", "eval.every", convert=steps, note=note)
        sheet.carry("eval_on_start", "eval.at_start", default=False)
    else:
        sheet.leave("eval_strategy", STEPS)
        sheet.leave("eval_steps", f"a share of all steps; {STEPS}" if evaluated in ("steps", None) else STEPS)
    sheet.sinks("report_to", {"wandb.project": "project", "trackio.project": "project"})
    sheet.carry("seed", "run.seed", 42)


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


def _optimiser(sheet: Sheet) -> None:
    sheet.carry("learning_rate", "train.lr", 1e-6)
    schedules = {"linear": "warmup_linear", "cosine": "warmup_cosine", "constant": "constant"}
    schedules |= {"inverse_sqrt": "inverse_sqrt", "warmup_stable_decay": "warmup_stable_decay"}
    given = str(sheet.value("lr_scheduler_type", "linear"))
    kind = given.removesuffix("_with_warmup")
    if kind in schedules:
        name = schedules[kind]
        sheet.put("train.lr_schedule", name, sheet.said("lr_scheduler_type", "linear"))
        if given == "constant":
            for setting in ("warmup_ratio", "warmup_steps"):
                sheet.leave(setting, "it has no effect: only 'constant_with_warmup' has a warm-up")
        else:
            _warmup(sheet, name)
        if name in ("warmup_linear", "warmup_cosine"):
            sheet.put(f"lr_schedule.{name}.end", 0.0)
    else:
        sheet.leave("lr_scheduler_type", f"there are {', '.join(sorted(schedules.values()))}")
    if "adamw" in str(sheet.value("optim", "adamw_torch")):
        plain = str(sheet.value("optim", "adamw_torch")) in ("adamw_torch", "adamw_torch_fused", "adamw_hf")
        note = "" if plain else "; here with moments of full precision, which need more memory"
        sheet.put("train.optimizer", "adamw", sheet.said("optim", "adamw_torch") + note)
        betas = {"adam_beta1": ("b1", 0.9), "adam_beta2": ("b2", 0.999), "adam_epsilon": ("eps", 1e-8)}
        for source, (target, default) in (betas | {"weight_decay": ("weight_decay", 0.0)}).items():
            sheet.carry(source, f"optimizer.adamw.{target}", default)
    else:
        sheet.leave("optim", "see `dovetail names optimizer`")
    sheet.bound("max_grad_norm", "train.max_grad_norm", 1.0, none=(None, 0.0))


def _warmup(sheet: Sheet, schedule: str) -> None:
    """TRL's `warmup_steps` below 1 are a share, and override `warmup_ratio`."""
    updates, steps = _updates(sheet), sheet.value("warmup_steps") or 0
    if not steps:
        sheet.carry("warmup_ratio", f"lr_schedule.{schedule}.warmup_ratio", 0.0)
    elif steps < 1:
        sheet.carry("warmup_steps", f"lr_schedule.{schedule}.warmup_ratio", convert=float)
    else:
        note = f"{updates} updates for each generation" if updates > 1 else ""
        target = f"lr_schedule.{schedule}.warmup_steps"
        sheet.carry("warmup_steps", target, convert=lambda count: max(1, round(count / updates)), note=note)
    if steps:
        sheet.leave("warmup_ratio", "warmup_steps overrides it")


def _model(sheet: Sheet) -> None:
    for name, prefix in (("trainer.args", r"\w+"), ("trainer.peft_config", r"lora\..*")):
        if any(re.fullmatch(prefix, given) for given in sheet.given):
            sheet.take(name)  # its own arguments are settings
    model: Any = next((name for name in ("model_name_or_path", "trainer.model") if sheet.has(name)), None)
    if model is not None:
        sheet.put("train.model", "pretrained", sheet.said(model))
        for target in ("model.pretrained.path", "tokenizer.huggingface.path"):
            sheet.put(target, str(sheet.value(model)))
        sheet.put("train.tokenizer", "huggingface")
        half = sheet.value("bf16")
        if (not sheet.value("fp16", False)) if half is None else half:
            said = "TRL's default, unless bf16 or fp16 is set" if half is None else sheet.said("bf16")
            sheet.put("model.pretrained.dtype", "bfloat16", f"{said}; the weights stay in float32")
        sheet.leave("fp16", REASONS[TYPES])
        if sheet.value("gradient_checkpointing", True):
            sheet.put("model.pretrained.remat", "full", sheet.said("gradient_checkpointing", True))
    _adapter(sheet)


def _adapter(sheet: Sheet) -> None:
    """Write what a `LoraConfig` says, or a file of `ModelConfig`."""
    names = {"r": ("lora.r", "lora_r"), "lora_alpha": ("lora.lora_alpha", "lora_alpha")}
    names |= {"lora_dropout": ("lora.lora_dropout", "lora_dropout")}
    names |= {name: (f"lora.{name}", name) for name in ("use_rslora", "use_dora")}
    used = {key: next((name for name in spelled if sheet.has(name)), None) for key, spelled in names.items()}
    if used["r"] or sheet.value("use_peft", False):
        sheet.put("train.adapter", "lora")
        for key, (target, convert) in ADAPTER.items():
            if used[key]:
                sheet.carry(str(used[key]), f"adapter.lora.{target}", convert=convert)
    for name in ("lora.target_modules", "lora_target_modules"):
        if sheet.has(name):
            sheet.carry(name, "adapter.lora.modules", convert=modules_of)
