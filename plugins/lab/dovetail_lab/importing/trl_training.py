"""What TRL's trainers have in common: optimiser, run, model and adapter."""

from __future__ import annotations

import re
from typing import Any, Final

from dovetail_lab.importing.reading import modules_of
from dovetail_lab.importing.sheet import Sheet

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


def reference(sheet: Sheet) -> None:
    """A reference that follows the policy."""
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


def updates_of(sheet: Sheet) -> int:
    """Return the number of updates that TRL makes from one generation; its steps are updates, ours are generations."""
    device, accumulated = sheet.value("per_device_train_batch_size", 8), sheet.value("gradient_accumulation_steps", 1)
    generated = sheet.value("generation_batch_size") or device * (sheet.value("steps_per_generation") or accumulated)
    return max(1, generated // (device * accumulated)) * sheet.value("num_iterations", 1)


def run(sheet: Sheet) -> None:
    """Checkpoints, evaluations and metrics; TRL counts updates."""
    updates = updates_of(sheet)

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


def optimiser(sheet: Sheet) -> None:
    """The optimiser and the schedule of its rate; TRL's default rate is that of its GRPO and DPO."""
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
    updates, steps = updates_of(sheet), sheet.value("warmup_steps") or 0
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


def model(sheet: Sheet) -> None:
    """The model, its types, and its adapter."""
    for name, prefix in (("trainer.args", r"\w+"), ("trainer.peft_config", r"lora\..*")):
        if any(re.fullmatch(prefix, given) for given in sheet.given):
            sheet.take(name)  # its own arguments are settings
    named: Any = next((name for name in ("model_name_or_path", "trainer.model") if sheet.has(name)), None)
    if named is not None:
        sheet.put("train.model", "pretrained", sheet.said(named))
        for target in ("model.pretrained.path", "tokenizer.huggingface.path"):
            sheet.put(target, str(sheet.value(named)))
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
