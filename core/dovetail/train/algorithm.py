"""The chosen components, planned and ready to be called: what a training step is made of."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import attrs

from dovetail.config import Choice, Config, floats, statics
from dovetail.plan import Plan, Reader, plan
from dovetail.registry import Component, Registry, current
from dovetail.train.devices.compiled import NUMBERS
from dovetail.train.gradients import Optimiser
from dovetail.train.parts import Floats, Part, traced

NO_LOGPS_YET = (
    "it is the policy being trained, which only losses see; an estimator runs before the update, read 'old_logps'"
)


@attrs.frozen(kw_only=True)
class CriticParts:
    """What trains the critic."""

    value_loss: Part
    loss_agg: Part
    optimiser: Optimiser
    warmup_steps: int


@attrs.frozen(kw_only=True)
class Algorithm:
    """A plan with the parts that carry it out, and the sizes of a step."""

    plan: Plan
    advantage: Part
    policy_loss: Part
    loss_agg: Part
    kl: Part | None
    kl_in: str
    kl_controller: Part
    corrections: tuple[Part, ...]
    reward_shaping: tuple[Part, ...]
    selections: tuple[Part, ...]
    live_selections: tuple[Part, ...]
    schedule: Part | None
    group_filter: Part | None
    entropy: bool
    entropy_controller: Part
    monitor: tuple[str, ...]
    fields: Mapping[str, Part]
    optimiser: Optimiser
    critic: CriticParts | None
    epochs: int
    group_size: int
    mini_batch_size: int
    micro_batch_size: int
    hyper: Mapping[str, Floats] = attrs.field(metadata=NUMBERS)

    @property
    def rows_per_prompt(self) -> int:
        """How many consecutive rows of every micro-batch have the same prompt, which is then computed once for them.

        Batches hold the groups of their prompts whole and one after another, and mini-batches are shuffled by this many
        rows; so it is the group's size where mini- and micro-batches are made of whole groups, and a divisor of it
        where they cut them.
        """
        return math.gcd(self.group_size, self.mini_batch_size, min(self.micro_batch_size, self.mini_batch_size))

    def quantities(self, names: tuple[str, ...]) -> dict[str, Component]:
        """Return the `field` components that a forward pass evaluates."""
        return {name: self.fields[name].component for name in names}


def make_plan(config: Config, registry: Registry | None = None) -> Plan:
    """Plan a step from the chosen components' signatures.

    Raises:
        PlanError: when a component reads a field that nobody provides.
    """
    registry = registry or current()
    on_policy = config.train.epochs == 1 and _mini_batch_size(config) == _sequences(config)
    options: dict[str, Any] = {
        "on_policy": on_policy,
        "has_correction": bool(config.train.correction),
        "has_schedule": config.train.schedule is not None,
    }
    readers = _policy_readers(config, registry)
    first = plan(readers, registry, **options)
    return plan([*readers, *_critic_readers(config)], registry, **options) if first.critic else first


def assemble(config: Config) -> Algorithm:
    """Plan the step and bind every part that it needs."""
    planned = make_plan(config)
    train = config.train
    needed = dict.fromkeys(
        (*planned.old, *planned.ref, *planned.answer, *planned.now, *(n for d in planned.derived.values() for n in d))
    )
    parts = {
        role: part(role, config.choice(f"train.{role}"))
        for role in ("advantage", "policy_loss", "loss_agg", "kl", "kl_controller", "entropy_controller")
    }
    optional = {
        role: part(role, config.choice(f"train.{role}")) if getattr(train, role) else None
        for role in ("group_filter", "schedule")
    }
    several = {role: _several(config, role) for role in ("correction", "reward_shaping", "selection")}
    fields = {name: part(f"field.{name}", config.component("field", name)) for name in needed}
    kl = attrs.evolve(parts["kl"], renames={"logps": "old_logps"} if train.kl_in == "reward" else {})
    optimiser = _optimiser("train", config, train)
    critic = _critic(config) if planned.critic else None
    settings = {
        "kl_coef": train.kl_coef,
        "temperature": config.sampling.temperature,
    }
    chosen = [*parts.values(), *filter(None, optional.values()), *sum(several.values(), ()), *fields.values()]
    hyper = _hyper(chosen, [optimiser])
    if critic:
        hyper |= _hyper([critic.value_loss, critic.loss_agg], [critic.optimiser])
    hyper["train"] |= traced(settings)
    return Algorithm(
        plan=planned,
        advantage=parts["advantage"],
        policy_loss=parts["policy_loss"],
        loss_agg=parts["loss_agg"],
        kl=kl if planned.kl else None,
        kl_in=train.kl_in,
        kl_controller=parts["kl_controller"],
        corrections=several["correction"],
        reward_shaping=several["reward_shaping"],
        selections=tuple(part for part in several["selection"] if not _is_live(part.component)),
        live_selections=tuple(part for part in several["selection"] if _is_live(part.component)),
        schedule=optional["schedule"],
        group_filter=optional["group_filter"],
        entropy=_has_entropy(config),
        entropy_controller=parts["entropy_controller"],
        monitor=train.monitor,
        fields=fields,
        optimiser=optimiser,
        critic=critic,
        epochs=train.epochs,
        group_size=train.group_size,
        mini_batch_size=_mini_batch_size(config),
        micro_batch_size=train.micro_batch_size or _mini_batch_size(config),
        hyper=hyper,
    )


def warnings(config: Config) -> list[str]:
    """Return what is allowed and probably not meant, one line each."""
    found = []
    kl = config.choice("train.kl").component
    if config.train.kl_coef and config.train.kl_in == "loss" and kl.declares.get("zero_expected_gradient"):
        found.append(
            f"train.kl = {kl.name} has zero expected gradient: in the loss it adds noise and pulls nowhere; set"
            " train.kl_in = 'reward', or choose an estimator with a gradient"
        )
    schedule = config.train.schedule
    if schedule and not any(entry.field == "schedule_weight" for entry in make_plan(config).entries):
        found.append(f"train.schedule = {schedule} has no effect: no chosen component reads 'schedule_weight'")
    return found


def _sequences(config: Config) -> int:
    return config.train.prompts * config.train.group_size


def _mini_batch_size(config: Config) -> int:
    return min(config.train.mini_batch_size or _sequences(config), _sequences(config))


def _policy_readers(config: Config, registry: Registry) -> list[Reader]:
    """The readers of a step, in the order in which it calls them."""
    train = config.train

    def reader(role: str, *, update: bool, **options: Any) -> Reader:
        return Reader(
            role=f"train.{role}", component=config.choice(f"train.{role}").component, update=update, **options
        )

    def every(role: str) -> list[Component]:
        return [choice.component for choice in config.several(f"train.{role}")]

    readers = [reader("group_filter", update=False, sampled_only=True)] if train.group_filter else []
    readers += [
        Reader(role=f"train.{role}", component=component, update=False)
        for role in ("correction", "reward_shaping")
        for component in every(role)
    ]
    if train.kl_coef and train.kl_in == "reward":
        readers.append(reader("kl", update=False, renames={"logps": "old_logps"}))
    readers += [
        reader("advantage", update=False, refused={"logps": NO_LOGPS_YET}),
        *(
            Reader(role="train.selection", component=component, update=_is_live(component), after_advantages=True)
            for component in every("selection")
        ),
        reader("loss_agg", update=True, whole_batch=True),
        reader("policy_loss", update=True),
    ]
    if train.kl_coef and train.kl_in == "loss":
        readers.append(reader("kl", update=True))
    watched = [("train.entropy_coef", "entropy")] if _has_entropy(config) else []
    watched += [("train.monitor", name) for name in train.monitor]
    readers += [
        Reader(role=role, component=registry.get("field", name), update=True, reads=(name,)) for role, name in watched
    ]
    return readers


def _critic_readers(config: Config) -> list[Reader]:
    return [
        Reader(
            role="critic.loss_agg",
            component=config.choice("critic.loss_agg").component,
            update=True,
            whole_batch=True,
        ),
        Reader(role="critic.value_loss", component=config.choice("critic.value_loss").component, update=True),
    ]


def part(role: str, choice: Choice) -> Part:
    """Bind a choice's hyperparameters in a role."""
    return Part(role=role, component=choice.component, statics=statics(choice), floats=floats(choice))


def _several(config: Config, role: str) -> tuple[Part, ...]:
    """Bind the choices of a role that holds several; their floats travel under the component's own name."""
    return tuple(part(f"{role}.{choice.component.name}", choice) for choice in config.several(f"train.{role}"))


def _is_live(selection: Component) -> bool:
    """A selection that reads the policy being trained is asked with the loss; others, once for the whole batch."""
    return "logps" in selection.reads


def _has_entropy(config: Config) -> bool:
    """There is a bonus if the coefficient is not zero, or a controller may make it so."""
    controller = config.choice("train.entropy_controller").component
    return config.train.entropy_coef != 0 or not controller.declares.get("constant")


def _optimiser(section: str, config: Config, settings: Any) -> Optimiser:
    return Optimiser(
        role=section,
        optimizer=part(f"{section}.optimizer", config.choice(f"{section}.optimizer")),
        schedule=part(f"{section}.lr_schedule", config.choice(f"{section}.lr_schedule")),
        settings={"lr": settings.lr, "max_grad_norm": settings.max_grad_norm},
    )


def sft_optimiser(config: Config) -> tuple[Optimiser, dict[str, Floats]]:
    """Return the optimiser of the warm start, and its numbers."""
    optimiser = _optimiser("sft", config, config.sft)
    return optimiser, _hyper([], [optimiser])


def _critic(config: Config) -> CriticParts:
    return CriticParts(
        value_loss=part("critic.value_loss", config.choice("critic.value_loss")),
        loss_agg=part("critic.loss_agg", config.choice("critic.loss_agg")),
        optimiser=_optimiser("critic", config, config.critic),
        warmup_steps=config.critic.warmup_steps,
    )


def _hyper(parts: list[Part], optimisers: list[Optimiser]) -> dict[str, Floats]:
    found = {part.role: traced(part.floats) for part in parts}
    for optimiser in optimisers:
        found |= {p.role: traced(p.floats) for p in (optimiser.optimizer, optimiser.schedule)}
        found[optimiser.role] = traced(optimiser.settings)
    return found
