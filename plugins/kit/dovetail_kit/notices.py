"""Lines about a config that is valid, and has bindings without effect or settings that are probably not intended."""

from __future__ import annotations

import argparse
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dovetail.config.presets import KIND as PRESET
from dovetail.errors import printable
from dovetail.plan.roles import POLICY

if TYPE_CHECKING:
    from dovetail.config import Config
    from dovetail.plan import Plan

FOR_ADAPTERS: Final = 5e-5
"""A learning rate from which a published model usually diverges within a few steps of AdamW on all its parameters."""


def before_training(options: argparse.Namespace, config: Config, folder: Path) -> AbstractContextManager[None]:
    """Print the notices of a config that is about to be trained, and warn of a type that the GPU does not have."""
    from dovetail_kit.machine.gpus import warn_of_bfloat16

    print_notices(config)
    warn_of_bfloat16(config)
    return nullcontext()


def print_notices(config: Config) -> None:
    """Print the bindings without effect, and warnings about settings that are valid but probably unintended."""
    from dovetail.config import in_few_lines

    for line in (*in_few_lines(config.unused), *overridden(config)):
        print(f"note: {printable(line)}")
    for warning in warnings(config):
        print(f"warning: {printable(warning)}")


def overridden(config: Config) -> list[str]:
    """Return one line for each value of a preset that the config itself sets to another."""
    found = []
    for path, choice in config.choices.items():
        if path not in config.schema.slots or choice.component.kind != PRESET:
            continue
        for name, value in choice.params.items():
            setting = f"{path.partition('.')[0]}.{name}"
            if config.setting(setting) != value:
                stands = f"{setting} = {config.setting(setting)!r} ({config.origins[setting]}) stands"
                found.append(f"{choice.component.label}.{name} = {value!r} has no effect: {stands}")
    return found


def warnings(config: Config) -> list[str]:
    """Return one line for each setting that is allowed but probably not intended."""
    from dovetail.plan import plan_step
    from dovetail.plan.compared import cuts
    from dovetail.step.algorithm import cannot_pack, keeps_order

    found = []
    kl = config.choice("train.kl").component
    if config.train.kl_coef and config.train.kl_in == "loss" and kl.declares.get("zero_expected_gradient"):
        found.append(
            f"train.kl = {kl.name} has zero expected gradient: in the loss it adds noise and pulls nowhere; set"
            " train.kl_in = 'reward', or choose an estimator with a gradient"
        )
    for name in ("kl", "entropy"):
        controller = config.choice(f"train.{name}_controller")
        if not config.setting(f"train.{name}_coef") and controller.declares.get("keeps_zero"):
            found.append(
                f"train.{name}_controller = '{controller.component.name}' has no effect: it changes a coefficient in"
                f" proportion, and train.{name}_coef is 0; begin with another"
            )
    advantage = config.choice("train.advantage").component
    if config.train.group_size == 1 and {"shift_invariant", "zero_mean"} & {*advantage.declares}:
        found.append(
            f"train.group_size = 1: advantage '{advantage.name}' compares the completions of a group, so with one each"
            " no reward has any effect"
        )
    loss, aggregation = (config.choice(f"train.{kind}").component for kind in ("policy_loss", "loss_agg"))
    if (wanted := loss.declares.get("averaged_by", aggregation.name)) != aggregation.name:
        found.append(
            f"train.loss_agg = '{aggregation.name}': policy_loss '{loss.name}' is the objective of its paper under"
            f" '{wanted}'"
        )
    if (
        config.choice("train.model").component.declares.get("loaded")
        and "train.adapter" not in config.choices
        and config.choice("train.optimizer").component.name == "adamw"
        and config.train.lr >= FOR_ADAPTERS
    ):
        found.append(
            f"train.lr = {config.train.lr:g} for all parameters of a model that is loaded: 1e-6 to 1e-5 is usual, and"
            " 1e-4 for an adapter (train.adapter = 'lora')"
        )
    plan = config.plan or plan_step(config)
    schedule = config.setting("train.schedule")
    scheduled = any(choice.params.get("scheduled") for choice in config.several("train.loss_terms"))
    if schedule and "schedule_weight" not in plan and not scheduled:
        found.append(f"train.schedule = {schedule} has no effect: no chosen component reads 'schedule_weight'")
    if config.train.length_buckets > 1 and (why := keeps_order(plan)):
        found.append(f"train.length_buckets = {config.train.length_buckets} has no effect: {why}")
    if config.train.packing and (why := cannot_pack(config, plan)):
        found.append(f"train.packing = True has no effect: {why}")
    if cuts(config.sampling) and not _measures_mismatch(plan):
        found.append(
            f"sampling.{cuts(config.sampling)[0]}: mismatch/ is not measured, as the sampler's log-probabilities are"
            " over what the cut leaves and nothing scores over the same; sampling.logps = 'vocabulary' compares like"
            " with like, where the engine reports that"
        )
    return found


def _measures_mismatch(plan: Plan) -> bool:
    """Whether the policy scores the completions over the same ids as the sampler, so that they are comparable."""
    return any(plan.compared in each.quantities for each in plan.passes if each.role == POLICY)
