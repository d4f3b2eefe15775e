"""verl's Hydra configuration, as of version 0.8: a shell script with overrides, or the YAML that a run has written."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from dovetail_lab.importing.reading import modules_of, read, rows_of
from dovetail_lab.importing.sheet import Sheet, translated

ACTOR: Final = "actor_rollout_ref.actor"
ROLLOUT: Final = "actor_rollout_ref.rollout"
MODEL: Final = "actor_rollout_ref.model"
ULYSSES: Final = tuple(f"{ACTOR}.{where}ulysses_sequence_parallel_size" for where in ("", "fsdp_config."))
ESTIMATORS: Final = (
    "gae",
    "grpo",
    "grpo_passk",
    "reinforce_plus_plus",
    "reinforce_plus_plus_baseline",
    "remax",
    "rloo",
    "opo",
    "gpg",
    "optimal_token_baseline",
    "tir_optimal_token_baseline",
    "gdpo",
)
LOSSES: Final = {"vanilla": "ppo", "geo_mean": "gmpo", "gpg": "reinforce"}
"""`policy_loss.loss_mode` where our loss has another name."""
AGGREGATION: Final = {
    "token-mean": "token_mean",
    "seq-mean-token-sum": "sequence_mean_token_sum",
    "seq-mean-token-mean": "sequence_mean_token_mean",
    "seq-mean-token-sum-norm": "sequence_mean_token_scale",
}
KL: Final = {
    "kl": "k1", "k1": "k1", "abs": "abs", "mse": "k2", "k2": "k2", "low_var_kl": "k3", "k3": "k3",
    "kl+": "k1_plus", "k1+": "k1_plus", "abs+": "abs_plus", "mse+": "k2", "k2+": "k2", "low_var_kl+": "k3_plus",
    "k3+": "k3_plus",
}  # fmt: skip
"""With a plus, the estimate has the gradient of k2."""
SCHEDULES: Final = {"constant": "constant", "cosine": "warmup_cosine"}

REASONS: Final = {
    r"data\..*": "set train.task: records of a parquet or jsonl file with task.records (docs/gsm8k.md for GSM8K)",
    r"trainer\.(logger|project_name|experiment_name|default_.*|log_.*|resume.*|.*_dir)": (
        "a run has a folder of its own (--folder), in which it resumes; run.sinks chooses where else metrics go"
    ),
    r".*\.(tool_config_path|interaction_config_path)": (
        "examples/dovetail-environments has verl's tools and interactions as they are: the tool and the interaction"
        " 'dovetail-environments/verl' (docs/coming_from.md)"
    ),
    r"actor_rollout_ref\.rollout\.mode": "train.staleness says how far sampling may be ahead",
    r"reward_model\.reward_manager": "rewards are components (train.rewards); docs/coming_from.md has each manager",
    r"critic\.model\.enable.*": "critic/model.pretrained.NAME; without it as model.pretrained.NAME",
    r".*(max_token_len_per_gpu|use_dynamic_bsz).*": (
        "train.packing and train.length_buckets spare padding; train.micro_batch_size, if not set, fits the memory"
    ),
    r".*micro_batch_size.*": "train.micro_batch_size is for every pass",
    r"async_training\..*": (
        "train.staleness = k samples k batches ahead, with a train.correction; train.in_flight is partial_rollout"
    ),
    r"actor_rollout_ref\.rollout\.(multi_turn|agent).*": "set train.agent_loop (docs/agents.md)",
    r"actor_rollout_ref\.rollout\.(gpu_mem|max_|enforce_eager|enable_|load_format|engine_kw|free_cache).*": (
        "vLLM's own settings go into rollout.vllm.flags (docs/engines.md)"
    ),
    r".*(fsdp|megatron|sequence_parallel|context_parallel|tensor_model|pipeline_model|expert|offload|strategy).*": (
        "devices are mesh.fsdp, mesh.cp and mesh.tp; memory.reference and memory.optimizer keep things on the host"
    ),
    r"actor_rollout_ref\.model\.use_remove_padding": "rows of one completion are padded unless train.packing is set",
    r".*(use_remove_padding|use_fused|use_liger|use_torch_compile|trust_remote).*": "there is nothing to set",
    r"reward_model\..*": "a reward model is train.rewards = ['model'] with reward.model.path",
}


def translate(path: Path) -> Sheet:
    """Return the translation of a file.

    Raises:
        ConfigError: if it has no settings.
    """
    return translated("verl", read(path, {}), _fill, REASONS)


def _fill(sheet: Sheet) -> None:
    sheet.heading("The loss")
    _loss(sheet)
    sheet.heading("Advantages and the reference")
    _advantages(sheet)
    _kl(sheet)
    sheet.heading("The sizes of a step; verl counts mini-batches in prompts and micro-batches for each device")
    _sizes(sheet)
    sheet.heading("Sampling")
    _sampling(sheet)
    sheet.heading("Data and rewards")
    _data(sheet)
    _rewards(sheet)
    sheet.heading("The optimiser")
    _optimiser(sheet, ACTOR, "train", "", 1e-6)
    sheet.heading("The model")
    _model(sheet)
    sheet.heading("To fill in: without these lines it would train something else")
    sheet.choose("train.task", r"data\.train_files", "verl's file has no data.train_files")
    chosen = "verl chooses a function by the data's data_source where custom_reward_function.path is not set"
    sheet.choose("train.rewards", r"custom_reward_function\..*|reward_model\.(path|model\.path)", chosen)
    _epochs(sheet)


def _loss(sheet: Sheet) -> None:
    mode = f"{ACTOR}.policy_loss.loss_mode"
    kind = sheet.value(mode, "vanilla")
    name = str(LOSSES.get(kind, kind))
    sheet.put("train.policy_loss", name, sheet.said(mode, "vanilla"))
    if name in ("ppo", "gspo", "cispo", "gmpo", "clip_cov"):
        _range(sheet, name)
    if name == "ppo":
        sheet.carry(f"{ACTOR}.clip_ratio_c", "policy_loss.ppo.clip_c", 3.0, note="verl's dual clip is always on")
    if name == "sapo":
        sheet.carry(f"{ACTOR}.tau_pos", "policy_loss.sapo.tau_pos", 1.0)
        sheet.carry(f"{ACTOR}.tau_neg", "policy_loss.sapo.tau_neg", 1.05)
    prefix = f"{ACTOR}.policy_loss"
    if name == "clip_cov":
        sheet.carry(f"{prefix}.clip_cov_ratio", "field.clip_cov_tokens.fraction", 2e-4)
        sheet.carry(f"{prefix}.clip_cov_lb", "field.clip_cov_tokens.lower", 1.0)
        sheet.carry(f"{prefix}.clip_cov_ub", "field.clip_cov_tokens.upper", 5.0)
    if name == "kl_cov":
        sheet.carry(f"{prefix}.kl_cov_ratio", "field.kl_cov_tokens.fraction", 2e-4)
        sheet.carry(f"{prefix}.ppo_kl_coef", "policy_loss.kl_cov.kl_coef", 0.1)
    _aggregation(sheet, name)
    sheet.carry(f"{ACTOR}.entropy_coeff", "train.entropy_coef", 0.0)
    if sheet.value("algorithm.use_pf_ppo", False):
        sheet.put("train.loss_mask", ["pf_ppo"], sheet.said("algorithm.use_pf_ppo"))
        sheet.carry("algorithm.pf_ppo.reweight_method", "loss_mask.pf_ppo.method", "pow")
        sheet.carry("algorithm.pf_ppo.weight_pow", "loss_mask.pf_ppo.power", 2.0)


def _range(sheet: Sheet, loss: str) -> None:
    """What the ratio is clipped to; `clip_ratio` stands for a bound that is null."""
    both, used = f"{ACTOR}.clip_ratio", False
    for side in ("low", "high"):
        own = f"{ACTOR}.clip_ratio_{side}"
        is_null = sheet.has(own) and sheet.value(own) is None
        used = used or is_null
        sheet.carry(both if is_null else own, f"policy_loss.{loss}.epsilon_{side}", 0.2)
    if not used:
        sheet.leave(both, "it has no effect: clip_ratio_low and clip_ratio_high come first, and are 0.2 by default")


def _aggregation(sheet: Sheet, loss: str | None) -> None:
    name = f"{ACTOR}.loss_agg_mode"
    mode = sheet.value(name, "token-mean")
    if loss == "gspo":
        sheet.put("train.loss_agg", "sequence_mean_token_mean", "verl's gspo has its own, whatever loss_agg_mode is")
        return
    if mode not in AGGREGATION:
        sheet.leave(name, "there is no such mode")
        return
    sheet.put("train.loss_agg", AGGREGATION[mode], sheet.said(name, "token-mean"))
    if mode == "seq-mean-token-sum-norm":
        scale = f"{ACTOR}.loss_scale_factor"
        given = sheet.value(scale)
        source = scale if given is not None else "data.max_response_length"
        note = "" if given is not None else "loss_scale_factor is not set, and verl divides by the padded width"
        target = "loss_agg.sequence_mean_token_scale.normalizer"
        sheet.carry(source, target, 512, float, note)


def _advantages(sheet: Sheet) -> None:
    source = "algorithm.adv_estimator"
    name = str(sheet.value(source, "gae")).removesuffix("_vectorized")
    if name not in ESTIMATORS:
        sheet.leave(source, "see `dovetail names advantage`")
        name = "gae"
    sheet.put("train.advantage", name, sheet.said(source, "gae"))
    if name == "gae":
        sheet.carry("algorithm.gamma", "advantage.gae.gamma", 1.0)
        sheet.carry("algorithm.lam", "advantage.gae.lam", 1.0)
        _critic(sheet)
    if name in ("grpo", "grpo_passk") and not sheet.value("algorithm.norm_adv_by_std_in_grpo", True):
        sheet.put(f"advantage.{name}.scale", "none", sheet.said("algorithm.norm_adv_by_std_in_grpo"))
    corrected = _correction(sheet)
    if sheet.value("algorithm.filter_groups.enable", False):
        _dynamic_sampling(sheet, corrected=corrected)


def _dynamic_sampling(sheet: Sheet, *, corrected: bool) -> None:
    """verl drops the groups left over; here they serve the next steps, which needs a correction."""
    prefix = "algorithm.filter_groups"
    sheet.put("train.group_filter", "nonzero_variance", sheet.said(f"{prefix}.enable"))
    if (sheet.value(f"{prefix}.max_num_gen_batches") or 0) > 0:
        rounds = f"{prefix}.max_num_gen_batches"
        sheet.carry(rounds, "train.refill_rounds", convert=lambda most: int(most) - 1, note="verl ends with an error")
    else:
        sheet.leave(f"{prefix}.max_num_gen_batches", "0 is without a limit; train.refill_rounds has one")
    sheet.leave(f"{prefix}.metric", "'nonzero_variance' compares the completions' scores, all rewards together")
    wanted, drawn = sheet.value("data.train_batch_size", 1024), sheet.value("data.gen_batch_size") or 0
    if drawn <= wanted:
        sheet.leave("data.gen_batch_size", "a round has at least train.prompts prompts")
        return
    note = f"with {wanted} needed; verl drops groups left over, here they serve the next steps"
    sheet.carry("data.gen_batch_size", "train.oversample", convert=lambda prompts: prompts - wanted, note=note)
    if not corrected:
        sheet.put("train.correction", ["tis_token"], "groups left over are from earlier weights")


def _epochs(sheet: Sheet) -> None:
    """Write the steps of so many epochs, which verl makes of whole batches, where the data is here to be counted."""
    epochs, prompts = sheet.value("trainer.total_epochs", 30), sheet.value("data.train_batch_size", 1024)
    said = sheet.said("trainer.total_epochs", 30)
    rows = 0 if sheet.value("data.filter_overlong_prompts", False) else rows_of(sheet.value("data.train_files"))
    if any(line.target == "train.steps" for line in sheet.lines):
        return
    if steps := epochs * (rows // prompts):
        sheet.put("train.steps", steps, f"{said}, of {rows} rows in batches of {prompts}")
    else:
        sheet.choose("train.steps", "(?!)", f"{said}: epochs x (rows of the data / {prompts}, rounded down)")


def _critic(sheet: Sheet) -> None:
    sheet.put("critic.value_loss", "ppo")
    sheet.carry("critic.cliprange_value", "value_loss.ppo.clip_value", 0.5)
    sheet.carry("trainer.critic_warmup", "critic.warmup_steps", 0)
    _optimiser(sheet, "critic", "critic", "critic/", 1e-5)
    if sheet.has("critic.model.path"):
        sheet.put("critic.model", "pretrained", sheet.said("critic.model.path"))
        if sheet.value("critic.model.path") != sheet.value(f"{MODEL}.path"):
            sheet.put("critic/model.pretrained.path", str(sheet.value("critic.model.path")))


def _kl(sheet: Sheet) -> None:
    in_reward, in_loss = sheet.value("algorithm.use_kl_in_reward", False), sheet.value(f"{ACTOR}.use_kl_loss", False)
    if in_reward:
        sheet.put("train.kl_in", "reward", sheet.said("algorithm.use_kl_in_reward"))
        _estimator(sheet, "algorithm.kl_penalty", "kl")
        sheet.carry("algorithm.kl_ctrl.kl_coef", "train.kl_coef", 0.001)
        if sheet.value("algorithm.kl_ctrl.type", "fixed") == "adaptive":
            sheet.put("train.kl_controller", "adaptive", sheet.said("algorithm.kl_ctrl.type"))
            sheet.carry("algorithm.kl_ctrl.target_kl", "kl_controller.adaptive.target", 0.1)
            sheet.carry("algorithm.kl_ctrl.horizon", "kl_controller.adaptive.horizon", 10000.0)
        for name in ("use_kl_loss", "kl_loss_coef", "kl_loss_type") if in_loss else ():
            sheet.leave(f"{ACTOR}.{name}", "there is one KL term, here in the reward (algorithm.use_kl_in_reward)")
    elif in_loss:
        sheet.put("train.kl_in", "loss", sheet.said(f"{ACTOR}.use_kl_loss"))
        _estimator(sheet, f"{ACTOR}.kl_loss_type", "low_var_kl")
        sheet.carry(f"{ACTOR}.kl_loss_coef", "train.kl_coef", 0.001)
        sheet.leave("algorithm.kl_ctrl.kl_coef", "it has no effect: algorithm.use_kl_in_reward is not set")
    else:
        off = "verl leaves KL out unless algorithm.use_kl_in_reward or actor.use_kl_loss says otherwise"
        sheet.put("train.kl_coef", 0.0, off)
        for name in ("algorithm.kl_ctrl.kl_coef", f"{ACTOR}.kl_loss_coef", f"{ACTOR}.kl_loss_type"):
            sheet.leave(name, f"it has no effect: {off}")


def _estimator(sheet: Sheet, name: str, default: str) -> None:
    kind = sheet.value(name, default)
    if kind not in KL:
        sheet.leave(name, f"there is no such KL; the value here is that of '{default}'")
        kind = default
    sheet.put("train.kl", KL[kind], sheet.said(name, default))


def _correction(sheet: Sheet) -> bool:
    """Write the correction for the sampler; tell whether there is one."""
    prefix = "algorithm.rollout_correction"
    old, level = f"{ACTOR}.tis_imp_ratio_cap", sheet.value(f"{prefix}.rollout_is")
    if sheet.has(old) and (sheet.value(old) or 0) > 0:
        sheet.put("train.correction", ["tis_token"], f"{sheet.said(old)}; today rollout_is = 'token'")
        sheet.carry(old, "correction.tis_token.upper", convert=float)
    elif level is not None:
        name = {"token": "tis_token", "sequence": "tis_sequence"}[level]
        sheet.put("train.correction", [name], sheet.said(f"{prefix}.rollout_is"))
        sheet.carry(f"{prefix}.rollout_is_threshold", f"correction.{name}.upper", 2.0)
        if sheet.value(f"{prefix}.rollout_is_batch_normalize", False):
            sheet.put(f"correction.{name}.normalize", True, sheet.said(f"{prefix}.rollout_is_batch_normalize"))
    if sheet.value(f"{prefix}.rollout_rs") is not None:
        why = "correction 'reject' has divergence, over, low and high, in nats; beside others in train.correction"
        for name in ("rollout_rs", "rollout_rs_threshold"):
            sheet.leave(f"{prefix}.{name}", why)
    if sheet.value(f"{prefix}.bypass_mode", False):
        sheet.leave(f"{prefix}.bypass_mode", "train.policy_loss = 'rollout_is' has one ratio, to the sampler")
    sheet.value(f"{ROLLOUT}.calculate_log_probs")
    return any(line.target == "train.correction" for line in sheet.lines)


def _sizes(sheet: Sheet) -> None:
    group = sheet.value(f"{ROLLOUT}.n", 1)
    sheet.carry("data.train_batch_size", "train.prompts", 1024)
    sheet.carry(f"{ROLLOUT}.n", "train.group_size", 1)
    mini = f"{ACTOR}.ppo_mini_batch_size"
    sheet.carry(
        mini,
        "train.mini_batch_size",
        256,
        lambda prompts: prompts * group,
        f"of {group} completion{'s' * (group > 1)} each",
    )
    devices = sheet.value("trainer.n_gpus_per_node", 8) * sheet.value("trainer.nnodes", 1)
    cut = next((name for name in ULYSSES if sheet.value(name, 1) > 1), None)
    if cut:  # the devices that share a row count as one
        sheet.carry(cut, "mesh.cp")
        devices //= sheet.value(cut)
    micro = f"{ACTOR}.ppo_micro_batch_size_per_gpu"
    if sheet.value(micro):
        sheet.carry(micro, "train.micro_batch_size", convert=lambda rows: rows * devices, note=f"on {devices} devices")
    sheet.carry(f"{ACTOR}.ppo_epochs", "train.epochs", 1)
    if group > 1 and sheet.value(f"{MODEL}.use_remove_padding", False):
        sheet.put("train.packing", True, sheet.said(f"{MODEL}.use_remove_padding"))
    if devices > 1:
        by = f", divided by {cut.rpartition('.')[2]}" if cut else ""
        sheet.put("mesh.fsdp", devices, sheet.said("trainer.n_gpus_per_node", 8) + by)
    if sheet.value("trainer.total_training_steps"):
        sheet.carry("trainer.total_training_steps", "train.steps")
        sheet.leave("trainer.total_epochs", "trainer.total_training_steps overrides it")
    sheet.sinks(
        "trainer.logger", {"wandb.project": "trainer.project_name", "mlflow.experiment": "trainer.project_name"}
    )
    if (sheet.value("trainer.test_freq") or -1) > 0:
        sheet.carry("trainer.test_freq", "eval.every")
    elif sheet.has("trainer.test_freq"):
        sheet.put("eval.every", None, sheet.said("trainer.test_freq"))
    if (sheet.value("trainer.save_freq") or -1) > 0:
        sheet.carry("trainer.save_freq", "run.checkpoint_every")
    else:
        sheet.leave("trainer.save_freq", "there are always checkpoints: run.checkpoint_every, run.keep_checkpoints")
    sheet.carry("trainer.val_before_train", "eval.at_start")


def _sampling(sheet: Sheet) -> None:
    sheet.carry("data.max_prompt_length", "train.max_prompt_tokens", 512)
    sheet.carry("data.max_response_length", "sampling.max_tokens", 512)
    if sheet.value("data.filter_overlong_prompts", False):
        sheet.put("train.long_prompts", "filter", sheet.said("data.filter_overlong_prompts"))
    elif sheet.value("data.truncation", "error") != "error":
        sheet.put("train.long_prompts", "truncate", f"{sheet.said('data.truncation')}; the end of a prompt is kept")
    sheet.carry(f"{ROLLOUT}.temperature", "sampling.temperature", 1.0)
    sheet.cuts({"top_k": (-1, 0, None), "top_p": (1.0, None)}, f"{ROLLOUT}.")
    if sheet.value(f"{ROLLOUT}.name") == "vllm":
        sheet.carry(f"{ROLLOUT}.name", "train.rollout")
    else:
        sheet.leave(f"{ROLLOUT}.name", "see `dovetail names rollout`; 'vanilla' samples in this process")
    turns = f"{ROLLOUT}.multi_turn"
    if sheet.value(f"{turns}.enable", False):
        sheet.put("train.agent_loop", "tool_agent", f"{sheet.said(f'{turns}.enable')}; choose train.tools")
        sheet.carry(f"{turns}.max_assistant_turns", "agent_loop.tool_agent.max_turns", convert=int)
        if sheet.value(f"{turns}.format", "hermes") == "hermes":
            sheet.put("train.tool_format", "hermes", sheet.said(f"{turns}.format", "hermes"))
        else:
            sheet.leave(f"{turns}.format", "see `dovetail names tool_format`")
    values = f"{ROLLOUT}.val_kwargs"
    if sheet.value(f"{values}.do_sample", False):
        sheet.carry(f"{values}.n", "eval.samples", 1)
        sheet.carry(f"{values}.temperature", "eval.temperature", 0.0)
        for cut, every in (("top_k", (-1, 0)), ("top_p", (1.0,))):
            if sheet.value(f"{values}.{cut}") not in every:
                sheet.carry(f"{values}.{cut}", f"eval.{cut}")
    else:
        for name in ("n", "temperature", "top_k", "top_p"):
            sheet.leave(f"{values}.{name}", "evaluation is greedy unless val_kwargs.do_sample is set")


def _data(sheet: Sheet) -> None:
    """Data made for verl: conversations under `prompt`, the right answer in `reward_model`."""
    for source, target in (("data.train_files", "path"), ("data.val_files", "eval_path")):
        files = sheet.given[source].value if sheet.has(source) else None
        if isinstance(files, list | tuple):
            files = files[0] if len(files) == 1 else tuple(files)
        if not isinstance(files, str | tuple):
            sheet.leave(source, f"name a file, or several: task.records.{target}")
            continue
        if target == "path":
            sheet.put("train.task", "records")
        sheet.value(source)
        sheet.put(f"task.records.{target}", files, sheet.said(source))
    if any(line.target == "train.task" for line in sheet.lines):
        sheet.carry("data.prompt_key", "task.records.prompt_column", "prompt")


def _rewards(sheet: Sheet) -> None:
    if sheet.value("custom_reward_function.path"):
        sheet.put("train.rewards", ["compute_score"], "called as verl calls it")
        where = "reward.compute_score.ground_truth_column"
        sheet.put(where, "reward_model.ground_truth", "where data made for verl has it")
        sheet.carry("custom_reward_function.path", "reward.compute_score.path")
        sheet.carry("custom_reward_function.name", "reward.compute_score.name", "compute_score")
    prefix = "reward_model.overlong_buffer"
    if sheet.value(f"{prefix}.enable", False):
        sheet.put("train.reward_shaping", ["overlong"], sheet.said(f"{prefix}.enable"))
        sheet.carry("data.max_response_length", "reward_shaping.overlong.max_tokens", 512)
        sheet.carry(f"{prefix}.len", "reward_shaping.overlong.buffer", 0)
        sheet.carry(f"{prefix}.penalty_factor", "reward_shaping.overlong.penalty", 1.0)


def _optimiser(sheet: Sheet, source: str, section: str, scope: str, lr: float) -> None:
    sheet.carry(f"{source}.optim.lr", f"{section}.lr", lr)
    older = f"{source}.optim.warmup_style"  # verl takes it first
    kind = older if sheet.value(older) is not None else f"{source}.optim.lr_scheduler_type"
    said = sheet.said(kind, "constant")
    if (name := SCHEDULES.get(sheet.value(kind, "constant"), "")) == "":
        sheet.leave(kind, "see `dovetail names lr_schedule`; the value here is verl's default")
        name, said = "constant", ""
    sheet.put(f"{section}.lr_schedule", name, said)
    ratio = f"{source}.optim.lr_warmup_steps_ratio"
    sheet.carry(ratio, f"{scope}lr_schedule.{name}.warmup_ratio", 0.0)
    if name == "warmup_cosine":
        sheet.carry(f"{source}.optim.min_lr_ratio", f"{scope}lr_schedule.warmup_cosine.end", 0.0)
    if (sheet.value(f"{source}.optim.lr_warmup_steps") or -1) > 0:
        sheet.carry(f"{source}.optim.lr_warmup_steps", f"{scope}lr_schedule.{name}.warmup_steps", convert=int)
    sheet.carry(f"{source}.optim.weight_decay", f"{scope}optimizer.adamw.weight_decay", 0.01)
    if sheet.has(betas := f"{source}.optim.betas"):
        b1, b2 = map(float, sheet.value(betas))
        sheet.put(f"{scope}optimizer.adamw.b1", b1, sheet.said(betas))
        sheet.put(f"{scope}optimizer.adamw.b2", b2)
    sheet.put(f"{scope}optimizer.adamw.decay", "all", "PyTorch's AdamW decays norms and biases, too")
    clip = f"{source}.grad_clip" if sheet.has(f"{source}.grad_clip") else f"{source}.optim.clip_grad"
    sheet.carry(clip, f"{section}.max_grad_norm", 1.0)


def _model(sheet: Sheet) -> None:
    path = f"{MODEL}.path"
    if sheet.has(path):
        sheet.put("train.model", "pretrained", sheet.said(path))
        for target in ("model.pretrained.path", "tokenizer.huggingface.path"):
            sheet.put(target, str(sheet.value(path)))
        sheet.put("train.tokenizer", "huggingface")
        sheet.put("model.pretrained.dtype", "bfloat16", "verl computes in bfloat16 with float32 weights")
        if sheet.value(f"{MODEL}.enable_gradient_checkpointing", True):
            sheet.put("model.pretrained.remat", "full", sheet.said(f"{MODEL}.enable_gradient_checkpointing", True))
    if sheet.value(f"{MODEL}.lora_adapter_path"):
        sheet.put("train.adapter", "peft")
        sheet.carry(f"{MODEL}.lora_adapter_path", "adapter.peft.path")
        for name in ("lora_rank", "lora_alpha", "target_modules"):
            sheet.leave(f"{MODEL}.{name}", "the adapter's own file says it")
    elif sheet.value(f"{MODEL}.lora_rank", 0):
        sheet.put("train.adapter", "lora")
        sheet.carry(f"{MODEL}.lora_rank", "adapter.lora.rank")
        sheet.carry(f"{MODEL}.lora_alpha", "adapter.lora.alpha", 16.0)
        sheet.carry(f"{MODEL}.target_modules", "adapter.lora.modules", convert=modules_of)
