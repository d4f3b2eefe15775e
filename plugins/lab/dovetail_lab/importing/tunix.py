"""tunix: the YAML of its command line, a script that overrides one, or a Python script with its config classes."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path
from typing import Any, Final

from dovetail_lab.importing.reading import read
from dovetail_lab.importing.sheet import BOUNDLESS, Sheet, translated

CALLS: Final = {
    "GRPOConfig": "grpo_config.",
    "DAPOConfig": "dapo_config.",
    "DrGRPOConfig": "drgrpo_config.",
    "PPOConfig": "ppo_config.",
    "RolloutConfig": "rollout_config.",
    "RLTrainingConfig": "rl_training_config.",
    "ClusterConfig": "cluster.",
    "LoraProvider": "lora_config.",
}
GROUPS: Final = ("dapo_config", "drgrpo_config", "grpo_config")
"""The sections of algorithms with groups."""
CLASSES: Final = {
    "dapo_config.beta": None,
    "dapo_config.loss_agg_mode": "token-mean",
    "dapo_config.epsilon_high": 0.28,
    "drgrpo_config.advantage_estimator": "drgrpo",
    "drgrpo_config.loss_agg_mode": "sequence-mean-token-scale",
    "rollout_config.max_tokens_to_generate": 64,
    "rollout_config.max_prompt_length": 64,
}
"""The defaults of classes where they are not those of a command line with `grpo_config`."""
COMMAND_LINE: Final = {"grpo_config.beta": 0.08, "ppo_config.beta": 0.08, "rollout_config.top_k": 50}
"""The defaults of the file with which every command line begins, where they are not those of the classes."""
AGGREGATION: Final = {
    "token-mean": "token_mean",
    "sequence-mean-token-mean": "sequence_mean_token_mean",
    "sequence-mean-token-scale": "sequence_mean_token_scale",
    "seq-mean-token-sum": "sequence_mean_token_sum",
    "sequence-mean-token-sum-norm": "sequence_mean_token_sum",
}
ESTIMATORS: Final = {"grpo": "grpo", "drgrpo": "dr_grpo", "rloo": "rloo", "gae": "gae"}
KL: Final = {"kl": "k1", "mse_kl": "k2", "low_var_kl": "k3"}

REASONS: Final = {
    r"(data_.*|dataset_.*|tfds_.*|apply_chat_.*|train_fraction|num_test_.*|reward_functions|verl_compatible)": "set"
    " train.task and train.rewards; task.gsm8k is GSM8K, task.records a file of your own",
    r".*(mesh|sharding|role_to_|allocation).*": "devices are mesh.*, and ROLE/mesh.* of roles that have their own",
    r"rollout_config\.rollout_(vllm|sglang)_.*|(vllm|sglang_jax)_config.*": "see rollout.vllm and rollout.sglang_jax",
    r".*(metrics_|profiler|perf_|checkpoint_root|log_dir|flush|max_inflight|offload).*": "a run has a folder of its own"
    " (--folder); `dovetail train --profile` traces steps",
    r"(reference|rollout|critic)_model_config.*": "the reference and the engine have the policy's model",
    r"model_config\..*|tokenizer_config\..*|actor_model_config\..*": "a model is a Hugging Face folder or name",
    r".*micro_batch_size|.*kv_cache_size|.*compute_logps_.*": "train.micro_batch_size is for every pass",
    r".*(value|init_value|decay_steps|warmup_steps)": "a schedule is a factor of train.lr over all steps, with a"
    " warmup_ratio",
}


def translate(path: Path) -> Sheet:
    """Return the translation of a file.

    Raises:
        ConfigError: if it has no settings.
    """
    given = read(path, CALLS, base="override_config_file")
    defaults = CLASSES if path.suffix == ".py" else COMMAND_LINE
    return translated("tunix", given, functools.partial(_fill, script=path.suffix == ".py"), REASONS, defaults)


def _section(sheet: Sheet) -> str:
    """Return the section of the algorithm that the file has."""
    there = {name.partition(".")[0] for name in sheet.given}
    if sheet.value("training_mode") == "agentic_grpo":
        return "agentic_grpo_config"
    return next((section for section in (*GROUPS, "ppo_config") if section in there), "grpo_config")


def _fill(sheet: Sheet, *, script: bool) -> None:
    section = _section(sheet)
    with_critic = section == "ppo_config"
    sheet.heading("The algorithm")
    group = 1 if with_critic else int(sheet.value(f"{section}.num_generations", 2))
    if with_critic:
        _ppo(sheet)
    else:
        _grpo(sheet, section)
    sheet.heading("The sizes of a step; tunix counts batches in prompts")
    _sizes(sheet, group, section)
    sheet.heading("Sampling")
    _sampling(sheet)
    sheet.heading("The optimiser")
    roles = {"actor": ("train", ""), "critic": ("critic", "critic/")} if with_critic else {"actor": ("train", "")}
    for role, (ours, scope) in roles.items():
        if not script:
            _optimiser(sheet, role, ours, scope)
        else:
            made = f"rl_training_config.{role}_optimizer"
            sheet.choose(f"{ours}.lr", re.escape(made), "tunix's script makes the optimiser")
            sheet.leave(made, "an optax optimiser of the script; see train.optimizer")
    sheet.heading("The model")
    _model(sheet)
    sheet.heading("To fill in: without these lines it would train something else")
    sheet.choose("train.task", r"data_(source|module|directory)|dataset_name|tfds_.*", "tunix's file names no data")
    sheet.choose("train.rewards", r"reward_functions", "tunix's file names no reward_functions")
    steps = "tunix's file has neither num_batches nor max_steps; epochs x prompts of the data / train.prompts"
    sheet.choose("train.steps", "num_train_epochs", steps)


def _grpo(sheet: Sheet, prefix: str) -> None:
    estimator, algorithm = f"{prefix}.advantage_estimator", sheet.value(f"{prefix}.loss_algo", "grpo")
    sequence = algorithm == "gspo-token"
    if algorithm not in ("grpo", "gspo-token"):
        sheet.leave(f"{prefix}.loss_algo", "there is no such loss; the value here is that of 'grpo'")
    sheet.carry(estimator, "train.advantage", "grpo", lambda name: ESTIMATORS.get(name, name))
    sheet.put("train.policy_loss", "gspo" if sequence else "grpo", sheet.said(f"{prefix}.loss_algo", "grpo"))
    _range(sheet, prefix, "gspo" if sequence else "grpo")
    mode = f"{prefix}.loss_agg_mode"
    sheet.carry(mode, "train.loss_agg", "sequence-mean-token-mean", lambda name: AGGREGATION.get(name, name))
    if sheet.value(mode) == "sequence-mean-token-scale":
        length, default = _length(sheet)
        sheet.carry(length, "loss_agg.sequence_mean_token_scale.normalizer", default, float)
    _kl(sheet, f"{prefix}.kl_loss_mode", f"{prefix}.beta", "kl")
    ahead = f"{prefix}.off_policy_steps"
    if sheet.value(ahead, 0) > 0:
        sheet.carry(ahead, "train.staleness", note="tunix's agentic learner")
        if sheet.value(f"{prefix}.sampler_is") is None:
            sheet.put("train.correction", ["tis_token"], "batches are from earlier weights")
    if sheet.value(f"{prefix}.sampler_is") is not None:
        sheet.put("train.correction", ["tis_token"], sheet.said(f"{prefix}.sampler_is"))
        sheet.carry(f"{prefix}.sampler_is_threshold", "correction.tis_token.upper", 2.0)
    sheet.leave(f"{prefix}.overlong_buffer", "it counts characters; train.reward_shaping = ['overlong'] counts tokens")
    sheet.leave(f"{prefix}.use_rollout_logps", "old_logps are the trainer's own; train.policy_loss = 'rollout_is' uses"
                " the sampler's")  # fmt: skip


def _ppo(sheet: Sheet) -> None:
    prefix = "ppo_config"
    sheet.put("train.advantage", "gae", "the settings are those of PPO")
    sheet.carry(f"{prefix}.gamma", "advantage.gae.gamma", 1.0)
    sheet.carry(f"{prefix}.gae_lambda", "advantage.gae.lam", 0.95)
    sheet.put("train.policy_loss", "ppo")
    _range(sheet, prefix, "ppo")
    _kl(sheet, f"{prefix}.kl_method", f"{prefix}.beta", "low_var_kl", place="reward")
    if sheet.value(f"{prefix}.entropy_coef"):
        sheet.carry(f"{prefix}.entropy_coef", "train.entropy_coef")
    sheet.put("critic.value_loss", "ppo")
    sheet.carry(f"{prefix}.clip_range_value", "value_loss.ppo.clip_value", 0.2)


def _range(sheet: Sheet, prefix: str, loss: str) -> None:
    for side in ("low", "high"):
        own = f"{prefix}.epsilon_{side}"
        name = own if sheet.value(own) is not None else f"{prefix}.epsilon"
        sheet.carry(name, f"policy_loss.{loss}.epsilon_{side}", 0.2)
    sheet.value(f"{prefix}.epsilon")
    if loss != "gspo" and sheet.value(f"{prefix}.epsilon_c") is not None:
        sheet.carry(f"{prefix}.epsilon_c", f"policy_loss.{loss}.clip_c")


def _kl(sheet: Sheet, method: str, beta: str, default: str, place: str = "loss") -> None:
    coefficient = sheet.value(beta, 0.04)
    sheet.put("train.kl_coef", float(coefficient or 0.0), sheet.said(beta, 0.04))
    sheet.put("train.kl_in", place)
    note = "; as a loss it has zero expected gradient, consider 'k3'" if place == "loss" else ""
    if (given := sheet.value(method, default)) not in KL:
        sheet.leave(method, f"there is no such KL; the value here is that of '{default}'")
        given = default
    kind = KL[given]
    sheet.put("train.kl", kind, sheet.said(method, default) + (note if kind == "k1" else ""))
    clamp = method.rpartition(".")[0] + ".kl_clamp_value"
    if kind != "k3":
        sheet.leave(clamp, "only kl 'k3' can be clamped (kl.k3.clamp)")
    elif sheet.value(clamp) is not None:
        sheet.carry(clamp, "kl.k3.clamp")


def _sizes(sheet: Sheet, group: int, config: str) -> None:
    prefix = "rl_training_config"
    prompts = int(sheet.value("batch_size", 16))
    sheet.carry("batch_size", "train.prompts", 16)
    sheet.put("train.group_size", group, "" if group == 1 else sheet.said(f"{config}.num_generations", 2))
    sheet.carry(f"{config}.num_iterations", "train.epochs", 1)
    for source, target in (("mini_batch_size", "mini_batch_size"), ("train_micro_batch_size", "micro_batch_size")):
        if sheet.value(f"{prefix}.{source}"):
            times = f"{group} completions each"
            sheet.carry(
                f"{prefix}.{source}", f"train.{target}", convert=lambda rows: min(rows, prompts) * group, note=times
            )
    steps = f"{prefix}.max_steps" if sheet.has(f"{prefix}.max_steps") else "num_batches"
    if sheet.value(steps):
        sheet.carry(steps, "train.steps", note="a step is one batch of prompts")
    if steps != "num_batches":
        sheet.value("num_batches")
    sheet.leave("num_train_epochs", "train.steps = epochs x prompts of the data / train.prompts")
    sheet.carry(f"{prefix}.eval_every_n_steps", "eval.every")
    sheet.carry(f"{prefix}.checkpointing_options.save_interval_steps", "run.checkpoint_every")
    sheet.carry(f"{prefix}.checkpointing_options.max_to_keep", "run.keep_checkpoints")


def _length(sheet: Sheet) -> tuple[str, int]:
    """Return the setting that limits a completion, and its default."""
    of_files, of_classes = "rollout_config.total_generation_steps", "rollout_config.max_tokens_to_generate"
    if sheet.has(of_files) or (of_classes not in sheet.defaults and not sheet.has(of_classes)):
        return of_files, 768
    return of_classes, 64


def _sampling(sheet: Sheet) -> None:
    prefix = "rollout_config"
    length, default = _length(sheet)
    sheet.carry(length, "sampling.max_tokens", default)
    if length.endswith(".total_generation_steps"):
        sheet.value(f"{prefix}.max_tokens_to_generate")  # on a command line it is the same limit
    sheet.carry(f"{prefix}.max_prompt_length", "train.max_prompt_tokens", 256)
    sheet.carry(f"{prefix}.temperature", "sampling.temperature", 0.9)
    sheet.cuts({"top_k": (-1, 0, None), "top_p": (1.0, None)}, f"{prefix}.")
    engine = "rollout_engine" if sheet.has("rollout_engine") else "cluster.rollout_engine"
    sheet.carry(engine, "train.rollout", "vanilla")


def _optimiser(sheet: Sheet, role: str, section: str, scope: str) -> None:
    prefix = f"rl_training_config.{role}_optimizer_config"
    peak = f"{prefix}.peak_value" if sheet.has(f"{prefix}.peak_value") else f"{prefix}.learning_rate"
    sheet.carry(peak, f"{section}.lr", 1e-5)
    kind = sheet.value(f"{prefix}.schedule_type", "warmup_cosine_decay_schedule")
    if "cosine" in str(kind):
        sheet.put(f"{section}.lr_schedule", "warmup_cosine", sheet.said(f"{prefix}.schedule_type", kind))
        if (sheet.value(f"{prefix}.warmup_steps") or 0) < 1:
            sheet.leave(f"{prefix}.warmup_steps", "no warm-up of so many steps")
        else:
            sheet.carry(f"{prefix}.warmup_steps", f"{scope}lr_schedule.warmup_cosine.warmup_steps", convert=int)
        sheet.carry(f"{prefix}.warmup_ratio", f"{scope}lr_schedule.warmup_cosine.warmup_ratio", 0.1)
        sheet.put(f"{scope}lr_schedule.warmup_cosine.end", 0.0, "end_value of tunix is a rate, not a factor")
    else:
        sheet.leave(f"{prefix}.schedule_type", "see `dovetail names lr_schedule`")
    if sheet.value(f"{prefix}.opt_type", "adamw") != "adamw":
        sheet.leave(f"{prefix}.opt_type", "see `dovetail names optimizer`")
    for name, default in (("b1", 0.9), ("b2", 0.99), ("weight_decay", 0.1)):
        sheet.carry(f"{prefix}.{name}", f"{scope}optimizer.adamw.{name}", default)
    sheet.put(f"{scope}optimizer.adamw.decay", "all", "optax decays every parameter")
    clip, unread = f"{prefix}.max_grad_norm", "tunix's command line has it in its files and does not read it"
    sheet.carry(clip, f"{section}.max_grad_norm", 0.1, lambda norm: norm or BOUNDLESS, unread)


def _model(sheet: Sheet) -> None:
    path = next((name for name in ("actor_model_config.model_id", "model_config.model_id") if sheet.has(name)), None)
    if path is not None:
        sheet.put("train.model", "pretrained", sheet.said(path))
        for target in ("model.pretrained.path", "tokenizer.huggingface.path"):
            sheet.put(target, str(sheet.value(path)))
        sheet.put("train.tokenizer", "huggingface")
    lora = next((name for name in ("actor_model_config.lora_config", "model_config.lora_config", "lora_config")
                 if sheet.has(f"{name}.rank")), None)  # fmt: skip
    if lora is not None:
        sheet.put("train.adapter", "lora")
        sheet.carry(f"{lora}.rank", "adapter.lora.rank")
        sheet.carry(f"{lora}.alpha", "adapter.lora.alpha", convert=float)
        sheet.leave(f"{lora}.module_path", "adapter.lora.modules is a regular expression of Hugging Face names, by"
                    " default every matrix")  # fmt: skip
    for role in ("actor_model_config", "model_config"):
        if sheet.has(f"{role}.mesh.shape"):
            _mesh(sheet, role)
            break
    seed = "model_config.rng_seed"
    if sheet.has(seed):
        sheet.carry(seed, "run.seed")


def _mesh(sheet: Sheet, role: str) -> None:
    shape = ast.literal_eval(str(sheet.value(f"{role}.mesh.shape")))
    names: Any = ast.literal_eval(str(sheet.value(f"{role}.mesh.axis_names", "('fsdp', 'tp')")))
    for name, size in zip(names, shape, strict=False):
        if name in ("fsdp", "tp"):
            sheet.put(f"mesh.{name}", int(size), sheet.said(f"{role}.mesh.shape"))
