"""The algorithm of a training step: the chosen components, planned and ready to be called."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping
from typing import Any

import attrs
from jaxtyping import Array, Int

from dovetail.config import Choice, Config, floats, statics
from dovetail.devices.compiled import NUMBERS
from dovetail.errors import ConfigError
from dovetail.plan import Call, Plan, plan_step
from dovetail.plan.compared import likened
from dovetail.plan.roles import COMPLETIONS, CRITIC, POLICY
from dovetail.plan.sizes import mini_batch_size
from dovetail.step.gradients import Optimiser
from dovetail.step.packing import most_of
from dovetail.step.parts import Floats, Part, same_form, traced


@attrs.frozen(kw_only=True)
class Term:
    """A term of the loss.

    Attributes:
        part: the component that returns the per-token values.
        coefficient: the setting with its coefficient, which a controller may change.
        own: whether its coefficient is the parameter `coef` that its kind provides.
        scheduled: whether the weight of `train.schedule` multiplies it.
        corrected: whether off-policy weights and loss masks multiply it.
        about: the mask of the tokens that it applies to, over which the aggregation weights it.
    """

    part: Part
    coefficient: str | None
    own: bool
    scheduled: bool
    corrected: bool
    about: str


@attrs.frozen(kw_only=True)
class Follow:
    """A model role other than policy and critic, with the follower that updates its weights after a step."""

    role: str
    part: Part

    @property
    def moves(self) -> bool:
        """Whether the weights ever change, in which case they are part of a checkpoint."""
        return not self.part.component.declares.get("constant")

    def __call__(self, weights: Any, policy: Any, step: Int[Array, ""], hyper: Mapping[str, Floats]) -> Any:
        """Return the role's next weights, given the policy's after `step` steps."""
        moved, _ = self.part({"weights": weights, "policy": policy, "step": step}, hyper)
        return same_form(self.part.component, weights, moved)


@attrs.frozen(kw_only=True)
class Sizes:
    """The sizes of a step in completions, and the number of positions whose logits are in memory at a time.

    `positions` None means the number of positions with `dovetail.step.forward.LOGITS_PER_CHUNK` logits. `segments` is
    the greatest number of completions that a row packs.
    """

    epochs: int
    group_size: int
    mini_batch_size: int
    micro_batch_size: int
    positions: int | None = None
    length_buckets: int = 1
    segments: int = 1

    @property
    def by_length(self) -> bool:
        """Whether micro-batches are made of sorted or packed rows, after their prompts."""
        return self.length_buckets > 1 or self.segments > 1

    @property
    def rows_per_prompt(self) -> int:
        """The number of consecutive rows of a micro-batch that share a prompt, which is computed once for all of them.

        A batch contains whole groups, one after another, and mini-batches are shuffled in blocks of this many rows.
        Therefore it is the group size if mini- and micro-batches consist of whole groups, and a divisor of it if they
        split groups. Micro-batches sorted by length do not count, because their prompts are computed separately.
        """
        together = math.gcd(self.group_size, self.mini_batch_size)
        return together if self.by_length else math.gcd(together, self.micro_batch_size)


@attrs.frozen(kw_only=True)
class Algorithm:
    """A plan with the bound components that execute it, and the sizes of a step.

    Attributes:
        plan: the calls and forward passes, stage by stage.
        parts: the components to call, by model and stage, except the terms of the loss.
        terms: the terms of each model's loss.
        penalties: terms that are subtracted from the token rewards instead.
        fields: the `field` components that the plan evaluates.
        optimisers: the optimiser of the policy and, if the plan has a critic, that of the critic.
        follow: the other roles that the plan needs.
        sizes: the sizes of a step.
        critic_warmup: number of initial steps in which only the critic learns.
        hyper: every traced hyperparameter, by the role of its part.
    """

    plan: Plan
    parts: Mapping[str, Mapping[str, tuple[Part, ...]]]
    terms: Mapping[str, tuple[Term, ...]]
    penalties: tuple[Term, ...]
    fields: Mapping[str, Part]
    optimisers: Mapping[str, Optimiser]
    follow: Mapping[str, Follow]
    controllers: Mapping[str, Part]
    schedule: Part | None
    monitor: tuple[str, ...]
    sizes: Sizes
    critic_warmup: int
    hyper: Mapping[str, Floats] = attrs.field(metadata=NUMBERS)

    def at(self, stage: str, model: str = POLICY) -> tuple[Part, ...]:
        """Return the components to call at a stage, without the terms of the loss."""
        return self.parts.get(model, {}).get(stage, ())

    def quantities(self, names: Iterable[str]) -> dict[str, Part]:
        """Return the `field` components that a forward pass evaluates."""
        return {name: self.fields[name] for name in names}

    @property
    def filters(self) -> tuple[Part, ...]:
        """The group filters; other components of their stage write fields."""
        return tuple(part for part in self.at("filtered") if not part.writes)

    @property
    def remembering(self) -> Part | None:
        """The estimator that reads `state`, if one does."""
        return next((part for part in self.at("advantages") if "state" in part.component.reads), None)

    @functools.cached_property
    def whole_groups(self) -> bool:
        """Whether some component needs the groups whole in every micro-batch."""
        return any(call.component.declares.get("whole_groups") for call in self.plan.calls)

    @functools.cached_property
    def has_critic(self) -> bool:
        """Whether a critic is trained."""
        return CRITIC in self.optimisers


Bound = list[tuple[Call, Part]]


def assemble(config: Config) -> Algorithm:
    """Bind every part that the plan of a step needs."""
    plan = config.plan or plan_step(config)
    bound = [(call, _part_of(call, config)) for call in plan.calls if call.reads_fields]
    models = dict.fromkeys(call.model for call in plan.calls)
    fields = {name: _field(name, config, plan) for name in plan.field_components}
    optimisers = {"train": _optimiser("train", config, config.train)}
    if CRITIC in models:
        optimisers[CRITIC] = _optimiser("critic", config, config.critic)
    controllers = {
        f"train.{name}_coef": part(f"{name}_controller", config.choice(f"train.{name}_controller"))
        for name in ("kl", "entropy")
    }
    schedule = next((part("schedule", choice) for choice in config.several("train.schedule")), None)
    following = {
        role: part(f"follower.{role}", config.choice(f"roles.{role}")) for role in plan.roles if role != CRITIC
    }
    hyper = _hyper(
        [*(each for _, each in bound), *fields.values(), *([schedule] if schedule else [])], optimisers.values()
    )
    hyper["train"] |= traced({"temperature": config.sampling.temperature})
    hyper |= {each.role: traced(each.floats) for each in following.values()}
    return Algorithm(
        # compiled programs do not depend on the task or the rewards, so runs that differ in these share them
        plan=attrs.evolve(plan, calls=tuple(call for call in plan.calls if call.reads_fields)),
        parts={model: _by_stage(bound, model) for model in models},
        terms={model: _terms(bound, model, "loss_terms") for model in models},
        penalties=_terms(bound, POLICY, "token_rewards"),
        fields=fields,
        optimisers=optimisers,
        follow={role: Follow(role=role, part=each) for role, each in following.items()},
        controllers=controllers,
        schedule=schedule,
        monitor=tuple(choice.component.name for choice in config.several("train.monitor")),
        sizes=_sizes(config, plan),
        critic_warmup=config.critic.warmup_steps,
        hyper=hyper,
    )


def _by_stage(bound: Bound, model: str) -> dict[str, tuple[Part, ...]]:
    found: dict[str, tuple[Part, ...]] = {}
    for call, each in bound:
        if call.model == model and call.reads_fields and not call.term:
            found[call.stage.name] = (*found.get(call.stage.name, ()), each)
    return found


def _terms(bound: Bound, model: str, stage: str) -> tuple[Term, ...]:
    return tuple(
        Term(
            part=each,
            coefficient=call.kind.coefficient,
            own="coef" in call.kind.parameters,  # a component may use a parameter of this name for itself
            scheduled="scheduled" in call.kind.parameters and bool(each.statics.get("scheduled")),
            corrected=call.kind.corrected,
            about=call.about,
        )
        for call, each in bound
        if call.model == model and call.term and call.stage.name == stage
    )


def _part_of(call: Call, config: Config) -> Part:
    kind, component = call.kind, call.component
    choices = [choice for choice in config.several(call.path) if choice.component is component] if kind.origin else []
    choice = choices[0] if choices else Choice(component=component, params={})
    section = call.path.partition(".")[0]
    role = kind.name if section == "train" else f"{section}.{kind.name}"
    # the metrics of several components of a kind would be averaged under one name
    names_itself = kind.many and (kind.term or len(config.several(call.path)) > 1)
    return attrs.evolve(
        part(f"{role}.{component.name}" if kind.many else role, choice),
        label=f"{kind.name}/{component.name}" if names_itself else section if section == CRITIC else kind.name,
        renames=dict(call.renames),
        writes=kind.writes,
    )


def _field(name: str, config: Config, plan: Plan) -> Part:
    choice = config.component("field", name)
    return attrs.evolve(part(f"field.{name}", choice), renames=likened(choice.component.reads, plan.compared))


def _sizes(config: Config, plan: Plan) -> Sizes:
    train, mini, longest = config.train, mini_batch_size(config), config.sampling.max_tokens
    sizes = Sizes(
        epochs=train.epochs,
        group_size=train.group_size,
        mini_batch_size=mini,
        micro_batch_size=min(train.micro_batch_size or mini, mini),
        length_buckets=1 if keeps_order(plan) else train.length_buckets,
        segments=1 if cannot_pack(config, plan) else min(most_of(longest), math.gcd(train.group_size, mini)),
    )
    for call in plan.calls:
        cut = {"mini": sizes.mini_batch_size, "micro": sizes.micro_batch_size}
        for name, size in cut.items():
            if call.component.declares.get("whole_groups") and size % sizes.group_size:
                raise ConfigError(
                    f"{call.label} compares the completions of a group, and train.{name}_batch_size = {size} cuts"
                    f" groups of train.group_size = {sizes.group_size}; take a multiple of it"
                )
    return sizes


def keeps_order(plan: Plan) -> str:
    """Return the reason why a group's rows must stay together in an update and cannot be sorted by length, if any."""
    for call in plan.calls:
        if call.component.declares.get("whole_groups"):
            return f"{call.label} compares the completions of a group"
    others = [each for each in plan.passes_of(live=True) if each.inputs != COMPLETIONS.name]
    return f"the update has a pass that a group shares, {others[0]}" if others else ""


def cannot_pack(config: Config, plan: Plan) -> str:
    """Return why completions are not packed, if so."""
    if not config.train.packing:
        return "it is off"
    if math.gcd(config.train.group_size, mini_batch_size(config)) == 1:
        return "only completions of one prompt share a row, and group and mini-batch size have no common divisor"
    return "completions of one token have nothing to pack" if config.sampling.max_tokens == 1 else keeps_order(plan)


def part(role: str, choice: Choice) -> Part:
    """Return a chosen component with its hyperparameters in a role."""
    fixed = statics(choice) | {name: each.bind() for name, each in choice.inner.items()}
    return Part(role=role, label=role, component=choice.component, statics=fixed, floats=floats(choice))


def _optimiser(section: str, config: Config, settings: Any) -> Optimiser:
    return Optimiser(
        role=section,
        optimizer=part(f"{section}.optimizer", config.choice(f"{section}.optimizer")),
        schedule=part(f"{section}.lr_schedule", config.choice(f"{section}.lr_schedule")),
        settings={"lr": settings.lr, "max_grad_norm": settings.max_grad_norm},
    )


def sft_optimiser(config: Config) -> tuple[Optimiser, dict[str, Floats]]:
    """Return the optimiser of the warm start, and its traced hyperparameters."""
    optimiser = _optimiser("sft", config, config.sft)
    return optimiser, _hyper([], [optimiser])


def _hyper(parts: Iterable[Part], optimisers: Iterable[Optimiser]) -> dict[str, Floats]:
    found = {part.role: traced(part.floats) for part in parts}
    for optimiser in optimisers:
        found |= {p.role: traced(p.floats) for p in (optimiser.optimizer, optimiser.schedule)}
        found[optimiser.role] = traced(optimiser.settings)
    return found
