"""TRL's `DPOConfig`, `ORPOConfig` and `CPOConfig`, as of version 1.16: a script that makes one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from dovetail.errors import ConfigError
from dovetail_lab.importing.reading import read
from dovetail_lab.importing.sheet import Sheet, translated
from dovetail_lab.importing.trl_training import REASONS, model, optimiser, reference, run

TRAINERS: Final = ("GRPO", "DPO", "ORPO", "CPO")
"""A script with several is read for the first of them."""
OF_PAIRS: Final = ("sigmoid", "hinge", "ipo")
"""`loss_type`s that are those of `dpo`, by the same names."""

OWN: Final = {
    r"precompute_ref_.*": "the reference is computed in each step, once for all its updates",
    r"f_divergence_type|f_alpha_.*|ld_alpha|use_weighting|discopop_tau|cpo_alpha|alpha": "there is no such variant",
    r"truncation_mode": "a completion that is too long keeps its beginning",
    r"activation_offloading|padding_free|padding_value|pad_token|max_prompt_length|max_completion_length": (
        "train.max_prompt_tokens and sampling.max_tokens are the limits, train.packing spares padding"
    ),
    r"(trainer\.)?(ref_model|compute_metrics)": (
        "an object of the script; the reference is the model that training begins with, unless reference.model"
    ),
}


def calls(kinds: tuple[str, ...] = TRAINERS) -> dict[str, str]:
    """Return the calls of a script whose arguments are settings, and what their names begin with."""
    prefixes = {f"{kind}{what}": prefix for kind in kinds for what, prefix in (("Config", ""), ("Trainer", "trainer."))}
    return prefixes | {"LoraConfig": "lora."}


def kind_of(path: Path) -> str | None:
    """Return which of these trainers a script has; None if it has none, or is no script."""
    for kind in TRAINERS if path.suffix == ".py" else ():
        try:
            read(path, {f"{kind}Config": "", f"{kind}Trainer": ""})
        except ConfigError:  # it has none, or cannot be read, which is said by who reads it next
            continue
        return kind
    return None


def translate(path: Path, kind: str) -> Sheet:
    """Return the translation of a script with such a trainer.

    Raises:
        ConfigError: if it cannot be read.
    """
    return translated("TRL", read(path, calls((kind,))), partial(_fill, kind), {**OWN, **REASONS})


def _fill(kind: str, sheet: Sheet) -> None:
    sheet.heading("The loss, over pairs of the data set; there are no advantages, and nothing is sampled.")
    sheet.put("train.rollout", "recorded", "columns chosen and rejected; see docs/preferences.md")
    sheet.put("train.rewards", ["recorded"], "1 for chosen, 0 for rejected")
    sheet.put("train.policy_loss", "zero")
    sheet.put("train.loss_agg", "sequence_mean_token_mean", "the mean over pairs")
    fill: dict[str, Callable[[Sheet], None]] = {"DPO": _dpo, "ORPO": _orpo, "CPO": _cpo}
    fill[kind](sheet)
    sheet.heading("The sizes of a step, in pairs")
    _sizes(sheet)
    sheet.heading("The optimiser")
    optimiser(sheet)
    sheet.heading("The run")
    run(sheet)
    sheet.lines[:] = [line for line in sheet.lines if not line.target.startswith("eval.")]
    sheet.put("eval.every", None, "evaluations sample, and 'recorded' has no score for that; see docs/preferences.md")
    for name in ("eval_strategy", "eval_steps", "eval_on_start"):
        sheet.leave(name, "evaluations sample: choose a reward beside 'recorded' first (docs/preferences.md)")
    sheet.heading("The model")
    model(sheet)
    sheet.heading("To fill in: without these lines it would train something else")
    sheet.choose("train.task", r"trainer\..*dataset|dataset_name", "TRL's script chooses the data")
    prompts = next(line.value for line in sheet.lines if line.target == "train.prompts")
    epochs = sheet.said("num_train_epochs", 3.0)
    sheet.choose("train.steps", "(?!)", f"{epochs}: epochs x pairs of the data / {prompts} (train.prompts)")


def _dpo(sheet: Sheet) -> None:
    given: Any = sheet.value("loss_type")
    kinds = ["sigmoid"] if given is None else [given] if isinstance(given, str) else list(given)
    weights = sheet.value("loss_weights") or [1.0] * len(kinds)
    said = sheet.said("loss_type") if sheet.has("loss_type") else "loss_type = ['sigmoid'], TRL's default"
    of_pairs = [each for each in kinds if each in OF_PAIRS]
    carried = [*of_pairs[:1], *[each for each in kinds if each == "sft"]]
    if left := [each for each in kinds if each not in carried]:
        sheet.leave("loss_type", f"there is no {', '.join(map(repr, left))} here, or only one beside 'sft'")
    carried = carried or ["sigmoid"]
    terms = {each: "preferred_nll" if each == "sft" else "dpo" for each in carried}
    sheet.put("train.loss_terms", list(terms.values()), said)
    for each, weight in zip(kinds, weights, strict=True):
        if each in terms and weight != 1.0:
            sheet.put(f"loss_term.{terms[each]}.coef", float(weight), sheet.said("loss_weights"))
    if "dpo" in terms.values():
        sheet.put("loss_term.dpo.loss_type", next(iter(terms)), said)
        sheet.carry("beta", "loss_term.dpo.beta", 0.1)
    sheet.leave("label_smoothing", "TRL has it in 'robust' and 'exo_pair' alone, and not as loss_term.dpo has it")
    reference(sheet)


def _orpo(sheet: Sheet) -> None:
    sheet.put("train.loss_terms", ["orpo"])
    sheet.carry("beta", "loss_term.orpo.ratio_coef", 0.1)


def _cpo(sheet: Sheet) -> None:
    kind, alpha = sheet.value("loss_type", "sigmoid"), sheet.value("cpo_alpha", 1.0)
    said = sheet.said("loss_type", "sigmoid")
    if kind != "simpo":
        sheet.leave("loss_type", "without a reference there are 'simpo' and 'orpo' here")
        said = "SimPO, since there is no CPO here"
    sheet.put("train.loss_terms", ["simpo", *["preferred_nll"] * bool(alpha)], said)
    sheet.carry("beta", "loss_term.simpo.beta", 0.1)
    sheet.carry("simpo_gamma", "loss_term.simpo.gamma", 0.5)
    sheet.carry("label_smoothing", "loss_term.simpo.label_smoothing", 0.0)
    if alpha:
        sheet.carry("cpo_alpha", "loss_term.preferred_nll.coef", 1.0, note="TRL's likelihood covers the prompt too")


def _sizes(sheet: Sheet) -> None:
    device, accumulated = sheet.value("per_device_train_batch_size", 8), sheet.value("gradient_accumulation_steps", 1)
    said = f"{sheet.said('per_device_train_batch_size', 8)}, on one device"
    sheet.put("train.group_size", 2)
    sheet.put("train.prompts", device * accumulated, f"{said}; {sheet.said('gradient_accumulation_steps', 1)}")
    sheet.put("train.micro_batch_size", 2 * device, "completions")
    length = sheet.value("max_length", 1024)
    both = f"{sheet.said('max_length', 1024)}, of prompt and completion together; here each has half"
    if length is not None:
        sheet.put("train.max_prompt_tokens", max(1, length // 2), both)
        sheet.put("train.long_prompts", "filter", "TRL cuts the end of what is too long")
        sheet.put("sampling.max_tokens", max(1, length - length // 2))
    else:
        sheet.leave("max_length", "there are always limits: train.max_prompt_tokens, sampling.max_tokens")
    if sheet.value("max_steps", -1) > 0:
        sheet.carry("max_steps", "train.steps")
        sheet.leave("num_train_epochs", "max_steps overrides it")
    else:
        sheet.leave("num_train_epochs", "train.steps = epochs x pairs of the data / train.prompts")
