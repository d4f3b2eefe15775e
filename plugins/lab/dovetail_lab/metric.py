"""The metrics that a config's runs record, as far as they can be told, so that typos are found before the first run."""

from __future__ import annotations

import ast
import functools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Final

import attrs

from dovetail.config import Config
from dovetail.errors import ConfigError, listing, nearest
from dovetail.plan import Call, Plan, plan_step
from dovetail.plan.roles import CRITIC, POLICY
from dovetail.registry import Component
from dovetail.run.code import files_of

ALWAYS: Final = (
    *(f"reward/{name}" for name in ("mean", "std", "unscored")),
    *(f"completion/{name}" for name in ("length_mean", "length_max", "truncated", "failed")),
    *(f"optimizer/{name}" for name in ("lr", "grad_norm", "update_norm")),
    "policy_loss/loss",
    "lengths/fill",
)
CRITICS: Final = ("loss", "lr", "grad_norm", "update_norm", "value_mean")
MISMATCH: Final = (
    *("abs_mean", "abs_max", "kl_k1", "kl_k3", "perplexity_ratio", "ratio_mean", "chi_squared"),
    *("chi_squared_sequence", "effective_sample_size"),
)
EPISODES: Final = ("turns_mean", "turns_max", "turn_rewards", "tool_calls", "tool_errors")
OF_ALL: Final[Mapping[str, tuple[str, ...]]] = {
    "correction": ("weight_mean", "effective_sample_size", "rejected_tokens", "rejected_completions"),
    "loss_mask": ("weight_mean",),
    "group_filter": ("kept", "rounds"),
}
"""What the engine records of all components of a kind together."""
OVERSAMPLED: Final = ("drawn", "used", "over", "refused")
ON_THE_HOST: Final = ("curriculum", "replay")
"""Kinds whose classes report metrics though they read no fields."""
NEAR: Final = 0.75
"""How alike two names of a component's own metrics are, by difflib, of which one is taken for a typo of the other."""


def check_metric(metric: str, config: Config) -> None:
    """Refuse a metric that no run of this config can record.

    What a component reports under its own name is up to it. Such a metric is refused if it is nearly one that the
    engine records there, or nearly one that stands in the component's source while no name there is computed.

    Raises:
        ConfigError: with the nearest name, and with the setting that is missing where it is one.
    """
    check_metric_of_any(metric, [config])


def check_metric_of_any(metric: str, configs: Iterable[Config]) -> None:
    """Refuse a metric that no run of any of these configs can record; see `check_metric`.

    Raises:
        ConfigError: with the nearest name, and with the setting that is missing where it is one.
    """
    refusing = list(configs)
    found: list[Recorded] = []
    for config in refusing:  # the first one has it, unless there is a typo
        found.append(Recorded.of(config))
        if found[-1].has(metric):
            return
    if refusing:
        raise ConfigError(_refusal(metric, refusing, found))


def _refusal(metric: str, configs: Sequence[Config], found: Sequence[Recorded]) -> str:
    if metric.startswith("eval/") and all(config.eval.every is None for config in configs):
        return f"metric {metric} needs evaluations: set eval.every, which is None"
    of_samples = metric.startswith(("eval/pass@", "eval/maj@", "eval/sampled_"))
    if of_samples and not any(config.eval.samples for config in configs):
        return f"metric {metric} needs several samples of each prompt: set eval.samples, which is 0"
    section = f"{metric.partition('/')[0]}/"
    known = sorted({name for each in found for name in each.known})
    beside = [name for name in known if name.startswith(section)]
    # names in the source of a component need not be those of metrics: good for a suggestion, not for a list
    written = sorted({name for each in found for name in each.written() if name.startswith(section)})
    advice = nearest(metric, [*beside, *written]) or nearest(metric, known)
    there = listing(beside or known)
    return f"no run of this config has a metric '{metric}'.{advice} There are: {there}, and what components report"


@attrs.frozen(kw_only=True)
class Recorded:
    """What the runs of a config record.

    Attributes:
        known: the metrics of the engine.
        own: by the beginning of their names, the component that reports metrics of its own.
    """

    known: frozenset[str]
    own: Mapping[str, tuple[Component, ...]]

    @classmethod
    def of(cls, config: Config) -> Recorded:
        """Return what the runs of a config record."""
        plan, own = config.plan or plan_step(config), defaultdict[str, list[Component]](list)
        for prefix, component in _reporting(config, plan):
            own[prefix].append(component)
        known = frozenset((*_evaluated(config), *_trained(config), *_planned(config, plan)))
        return cls(known=known, own={prefix: tuple(components) for prefix, components in own.items()})

    def has(self, metric: str) -> bool:
        """Tell whether a run may record a metric."""
        return metric in self.known or any(self._may_report(metric, prefix) for prefix in self.own)

    def written(self) -> list[str]:
        """Return the names of metrics in the sources of components, as far as these do not compute names."""
        return [f"{prefix}/{name}" for prefix in self.own for name in self._written(prefix) or ()]

    def _may_report(self, metric: str, prefix: str) -> bool:
        name = metric.removeprefix(f"{prefix}/")
        if name in (metric, ""):
            return False
        beside = [each.removeprefix(f"{prefix}/") for each in self.known if each.startswith(f"{prefix}/")]
        written = self._written(prefix)
        return name in (written or ()) or not get_close_matches(name, [*beside, *(written or ())], 1, NEAR)

    def _written(self, prefix: str) -> frozenset[str] | None:
        """Return the names of metrics in the sources of components; None if some are computed."""
        found = [_keys(str(file)) for component in self.own[prefix] for file in files_of(component).values()]
        return None if None in found else frozenset[str]().union(*(each for each in found if each))


@functools.cache
def _keys(file: str) -> frozenset[str] | None:
    """Return the texts that are keys of dicts in a Python file; None if keys are computed, such as `f"{name}_mean"`."""
    keys: list[ast.expr | None] = []
    for node in ast.walk(ast.parse(Path(file).read_bytes())):
        if isinstance(node, ast.Dict):
            keys += node.keys
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            keys.append(node.slice)
        elif isinstance(node, ast.DictComp) and not _passes_on(node):
            return None
    if any(isinstance(key, ast.JoinedStr | ast.BinOp | ast.Call) for key in keys):
        return None
    texts = (key.value for key in keys if isinstance(key, ast.Constant))
    return frozenset(text for text in texts if isinstance(text, str) and text)


def _passes_on(node: ast.DictComp) -> bool:
    """Whether a dict is made from the items of another one, with the same keys."""
    over = node.generators[-1].iter
    of_items = isinstance(over, ast.Call) and isinstance(over.func, ast.Attribute) and over.func.attr == "items"
    return of_items and isinstance(node.key, ast.Name)


def _label(call: Call) -> str:
    """Return what the names of a call's metrics begin with."""
    if call.model == CRITIC:
        return CRITIC
    names_itself = call.kind.reads == "columns" or (call.kind.many and call.stage.name == "loss_terms")
    return f"{call.kind.name}/{call.component.name}" if names_itself else call.kind.name


def _reporting(config: Config, plan: Plan) -> Iterator[tuple[str, Component]]:
    """Yield the components that may report metrics of their own, each after what the names of these begin with."""
    for call in plan.calls:
        if call.kind.reads or call.kind.name in ON_THE_HOST:
            yield _label(call), call.component
        if call.kind.name == "reward" and config.eval.every is not None:
            yield f"eval/{_label(call)}", call.component
    for name in plan.field_components:
        yield f"field/{name}", config.component("field", name).component
    if _has_turns(config):
        for path in ("train.agent_loop", "train.interaction", "train.tools"):
            yield from (("episode", choice.component) for choice in config.several(path))


def _has_turns(config: Config) -> bool:
    return config.choice("train.agent_loop").component.declares.get("turns", False)


def _evaluated(config: Config) -> Iterator[str]:
    """Yield the metrics of an evaluation."""
    settings = config.eval
    if settings.every is None:
        return
    checks = ["accuracy", *(f"{name}_accuracy" for name in ("partial", "format") if getattr(settings, name))]
    rewards = [f"reward/{choice.component.name}" for choice in config.several("train.rewards")]
    for name in (*checks, *rewards, "reward_mean", "length_mean", "truncated"):
        yield f"eval/{name}"
    if settings.samples:
        sampled = [f"sampled_{check}" for check in checks]
        votes = [f"maj@{k}" for k in settings.majority_at]
        for name in (*sampled, *(f"pass@{k}" for k in settings.pass_at), *votes):
            yield f"eval/{name}"


def _trained(config: Config) -> Iterator[str]:
    """Yield the metrics of a training step that settings tell."""
    yield from ALWAYS
    for choice in config.several("train.rewards"):
        yield from (f"reward/{choice.component.name}", f"reward/{choice.component.name}/abstained")
    yield from (f"process_reward/{choice.component.name}" for choice in config.several("train.process_rewards"))
    yield from (f"{choice.component.name}/mean" for choice in config.several("train.monitor"))
    if config.train.staleness or config.train.oversample is not None:
        yield from ("staleness/mean", "staleness/max")
    if config.train.oversample is not None:
        yield from (f"group_filter/{name}" for name in OVERSAMPLED)
    if config.several("train.schedule"):
        yield "schedule/weight"
    if config.train.replay_choices:
        yield from ("field/choices/agreement", "field/old_choices/agreement")
    if _has_turns(config):
        yield from (f"episode/{name}" for name in EPISODES)


def _planned(config: Config, plan: Plan) -> Iterator[str]:
    """Yield the metrics of a training step that its plan tells."""
    if plan.compared is not None:
        yield from (f"mismatch/{name}" for name in MISMATCH)
    for call in plan.calls:
        label = _label(call)
        yield from (f"{call.kind.name}/{name}" for name in OF_ALL.get(call.kind.name, ()))
        if call.model == CRITIC:
            yield from (f"{CRITIC}/{name}" for name in CRITICS)
        elif call.term and call.model == POLICY:
            yield from () if call.kind.corrected else (f"{label}/mean",)
            yield from (f"{label}/coef",) if call.kind.coefficient else ()
        elif call.stage.name == "loss_terms":
            yield f"{label}/weight_mean"
