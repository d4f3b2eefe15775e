"""What cannot be computed where the meshes say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.config.schema import MESH
from dovetail.errors import PlanError, listing
from dovetail.plan.off_policy import declares
from dovetail.plan.plan import Plan
from dovetail.plan.roles import POLICY, ROLLOUT

if TYPE_CHECKING:
    from dovetail.config import Config

REWARD, REWARDS = "reward", "train.rewards"
PLACED = "placed"
"""What a component declares that computes on the devices of its kind's mesh."""


def check_placement(config: Config, plan: Plan) -> None:
    """Refuse meshes with which a step cannot be carried out, whatever devices there are.

    Raises:
        PlanError: naming the settings, and what would do.
    """
    _check_placed(config)
    for each in plan.passes:
        for other in each.beside:
            here, there = config.mesh_of(each.role), config.mesh_of(other)
            if here != there:
                role = other if f"{other}/{MESH}" in config.sections else each.role
                raise PlanError(
                    f"{_said(config, role)}: {each}; the logits of both models are read position by position, in one"
                    f" program, so that both need the same devices: remove {role}/{MESH}"
                )
    if config.train.staleness:
        _check_ahead(config, plan)


def samples_here(config: Config) -> bool:
    """Return whether the engine computes with JAX in this process; any other only gets weights to hand them over."""
    return bool(config.choice("train.rollout").declares.get(PLACED))


def sampler_places(config: Config) -> tuple[str, ...]:
    """Return whose meshes the sampler's program computes on: an engine's here, and then that of rewards with models."""
    rewards = any(choice.declares.get(PLACED) for choice in config.several(REWARDS))
    return (*[ROLLOUT] * samples_here(config), *[REWARD] * rewards)


def _check_placed(config: Config) -> None:
    """Refuse devices for components that would not be on them."""
    for name, kind in config.registry.kinds.items():
        if not kind.placed or f"{name}/{MESH}" not in config.sections or kind.path is None:
            continue
        chosen = config.several(kind.path)
        if not any(choice.declares.get(PLACED) for choice in chosen):
            able = [each.name for each in config.registry.components(name) if declares(each, PLACED)]
            names = ", ".join(choice.component.name for choice in chosen)
            given = "; ".join(c.given for c in chosen if c.component.declares.get(PLACED))
            raise PlanError(
                f"{_said(config, name)}: {kind.path} = {names} does not compute with JAX in this process"
                + (f" with {given}" if given else "")
                + f"; remove {name}/{MESH}, or "
                + ("that setting" if given else f"choose one that does: {listing(able)}")
            )


def _check_ahead(config: Config, plan: Plan) -> None:
    """Refuse programs of two threads that share several devices: each may hold one that the other waits for."""
    trainer = {number for role in (POLICY, *plan.roles) for number in config.mesh_of(role).span}
    shared = sorted(trainer & {number for role in sampler_places(config) for number in config.mesh_of(role).span})
    if len(shared) > 1:
        setting = f"train.staleness = {config.train.staleness} ({config.origins['train.staleness']})"
        who = "the sampler" if samples_here(config) else "the rewards' models"
        raise PlanError(
            f"{setting}: sampler and trainer would both have programs that span devices {shared[0]} to {shared[-1]},"
            f" which may deadlock; place {who} from device {max(trainer) + 1} on"
            f" ({', '.join(f'{role}/{MESH}.first' for role in sampler_places(config))}), which a run of one process"
            " can, "
            + "take an engine that computes outside of this process, " * samples_here(config)
            + "or set train.staleness = 0"
        )


def _said(config: Config, role: str) -> str:
    """A role's mesh and where it is set, for messages."""
    mesh = config.mesh_of(role)
    places = [config.origins[key] for key in config.origins if key.startswith(f"{role}/{MESH}.")]
    place = ", ".join(each for each in places if each != "default")
    return f"{role}/{MESH} (device{'s' * (len(mesh.span) > 1)} {mesh.numbers}; {place})"
