"""Checks for training on completions that older weights have sampled."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from dovetail.errors import PlanError, PluginError, listing
from dovetail.plan.compared import SAMPLER
from dovetail.plan.plan import Call
from dovetail.registry import Component, Registry

if TYPE_CHECKING:
    from dovetail.config import Config

BESIDE: Final = "versions"
"""The claim of an engine that it can sample while the trainer updates."""
IN_FLIGHT: Final = "in_flight"
"""The claim of an engine that it can take newer weights in the middle of completions."""


def check_off_policy(config: Config, chosen: Sequence[Call]) -> None:
    """Refuse to train on completions of older weights as if the current policy had sampled them.

    Raises:
        PlanError: if no component corrects for it, or the engine cannot sample ahead; the message gives the setting and
            the alternatives.
    """
    train: Any = config.train
    corrects = any(SAMPLER in call.reads for call in chosen if call.reads_fields)
    if "train.replay" in config.choices and not corrects:
        raise PlanError(
            f"train.replay = {config.choice('train.replay').component.name} learns from completions of earlier"
            f" policies, {_nobody_corrects(config.registry)}"
        )
    if train.oversample is not None:
        _check_oversampling(config, chosen, corrects)
    if train.in_flight:
        _check_in_flight(config)
    if not train.staleness:
        return
    setting = f"train.staleness = {train.staleness} ({config.origins['train.staleness']})"
    if not corrects:
        raise PlanError(f"{setting} learns from completions of older weights, {_nobody_corrects(config.registry)}")
    check_engine(config, BESIDE, f"{setting} samples while the trainer updates", "train.staleness = 0")


def _check_in_flight(config: Config) -> None:
    """Refuse newer weights in the middle of completions without any to wait for, or with an engine that takes none.

    Raises:
        PlanError: naming what is missing.
    """
    setting = f"train.in_flight = True ({config.origins['train.in_flight']})"
    if not config.train.staleness:
        raise PlanError(
            f"{setting} gives newer weights to completions that are being sampled, and with train.staleness = 0 there"
            " are none while the trainer updates; set it to 1"
        )
    check_engine(config, IN_FLIGHT, f"{setting} replaces weights in the middle of completions", "it to False")


def check_engine(config: Config, claim: str, why: str, instead: str) -> None:
    """Refuse an engine that does not make a claim.

    Raises:
        PlanError: with the engines that do.
    """
    choice = config.choice("train.rollout")
    if not choice.declares.get(claim):
        engine = choice.component
        able = [c.name for c in config.registry.components("rollout") if declares(c, claim)]
        raise PlanError(
            f"{why}, and rollout {engine.name} of {engine.origin} does not declare '{claim}', that it can; set"
            f" {instead}, or train.rollout to one that does: {listing(able)}"
        )


def _check_oversampling(config: Config, chosen: Sequence[Call], corrects: bool) -> None:
    """Refuse to keep groups for later steps if there never are any, or if nothing corrects for their age.

    Raises:
        PlanError: naming what is missing.
    """
    train: Any = config.train
    setting = f"train.oversample = {train.oversample} ({config.origins['train.oversample']})"
    if not any(call.kind.name == "group_filter" for call in chosen):
        raise PlanError(
            f"{setting} samples prompts in place of those that a filter will reject, and without train.group_filter"
            f" none is rejected; set it, for example to {listing(config.registry.names('group_filter'))}, or leave"
            " train.oversample out"
        )
    if not corrects:
        raise PlanError(
            f"{setting} keeps groups for later steps, whose weights are newer than theirs,"
            f" {_nobody_corrects(config.registry)}"
        )


def _nobody_corrects(registry: Registry) -> str:
    return (
        f"and no chosen component reads '{SAMPLER}' to correct for that; set train.correction to a name, or take"
        f" another component that reads it. There are {_readers(registry)}"
    )


def _readers(registry: Registry) -> str:
    """List the components that read the sampler's log-probabilities, by the setting that chooses them."""
    found: dict[str, list[str]] = defaultdict(list)
    for kind in registry.kinds.values():
        if kind.reads == "fields" and kind.stage and kind.path:
            found[kind.path] += [each.name for each in registry.components(kind.name) if _reads(each, SAMPLER)]
    return "; ".join(f"{path}: {listing(names, 40)}" for path, names in found.items() if names)


def _reads(component: Component, field: str) -> bool:
    return _unless_broken(lambda: field in component.reads)


def declares(component: Component, name: str) -> bool:
    """Whether a component makes a claim; a broken one makes none."""
    return _unless_broken(lambda: component.declares.get(name))


def _unless_broken(question: Callable[[], Any]) -> bool:
    try:
        return bool(question())
    except PluginError:  # a broken component is reported where it is chosen
        return False
