"""Plan a step: derive, from the signatures of the chosen components, exactly the work it needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dovetail.errors import PlanError, listing, nearest
from dovetail.kinds import FIELDS
from dovetail.kinds.fields import TURNS
from dovetail.plan.calls import calls, critic_calls
from dovetail.plan.compared import KEPT, SAMPLER, SUPPORT, check_reported, compared, reported, unlike
from dovetail.plan.needs import Planner
from dovetail.plan.off_policy import check_off_policy
from dovetail.plan.placement import check_placement
from dovetail.plan.plan import Call, Plan
from dovetail.plan.routing import CHOICES, SETTING, check_routing
from dovetail.plan.sizes import mini_batch_size, rows_of_step

if TYPE_CHECKING:
    from dovetail.config import Config


def plan_step(config: Config) -> Plan:
    """Plan a step of this configuration.

    Raises:
        PlanError: if a component reads a field that nothing provides, or that does not exist yet when it is called, or
            if chosen components exclude each other.
        ConfigError: if the engine cannot report log-probabilities as `sampling.logps` asks.
    """
    check_reported(config)
    check_routing(config)
    planner = Planner(
        registry=config.registry,
        roles=config.schema.roles,
        missing=_missing(config),
        columns=lambda: config.choice("train.task").bind().columns,
        # one update per collection, on all of it
        on_policy=config.train.epochs == 1 and mini_batch_size(config) == rows_of_step(config),
        estimator=config.choice("train.advantage").component,
        compared=compared(config),
        unlike=lambda: unlike(config),
    )
    chosen = calls(config)
    _refuse_together(chosen)
    check_off_policy(config, chosen)
    _check_adapter(config)
    _check_per_reward(config)
    for call in chosen:
        planner.read(call)
    for choice in config.several("train.monitor"):
        planner.watch("train.monitor", choice.component)
    if config.train.replay_choices:
        planner.note_setting(CHOICES, SETTING)
    if planner.needs_critic:
        for call in (more := critic_calls(config)):
            planner.read(call)
        chosen = (*chosen, *more)
    plan = planner.finish(chosen)
    check_placement(config, plan)
    return plan


def _missing(config: Config) -> dict[str, str]:
    """Return the fields that this configuration does not have, with what would provide them."""
    there: dict[str, Any] = {name: config.several(info.setting) for name, info in FIELDS.items() if info.setting}
    goes_on = config.choice("train.agent_loop").component.declares.get("turns", False)
    there |= dict.fromkeys((name for name, info in FIELDS.items() if info.without == TURNS), goes_on)
    there |= {KEPT: compared(config) == SUPPORT, SAMPLER: reported(config)}
    there |= dict.fromkeys(CHOICES, config.train.replay_choices)
    return {field: FIELDS[field].without for field, chosen in there.items() if not chosen}


def _refuse_together(chosen: Sequence[Call]) -> None:
    """Refuse a component together with one of a kind that it excludes, because both would do the same."""
    for call in chosen:
        for kind in call.component.declares.get("excludes", ()):
            for other in chosen:
                if other.kind.name == kind:
                    raise PlanError(
                        f"{call.label} already does the work of a {kind}, so {other.label} would do it twice; set"
                        f" {other.path} to None, or choose another {call.kind.name}"
                    )


def _check_adapter(config: Config) -> None:
    """Refuse an adapter that is more than what the engine reads of one."""
    engine, adapter = config.choice("train.rollout"), config.choices.get("train.adapter")
    if adapter and (setting := engine.declares.get("low_rank_only")) and adapter.declares.get("beyond_low_rank"):
        raise PlanError(
            f"{engine.component.label}.{setting} hands over low-rank changes of matrices alone, and {adapter.given}"
            f" makes more of them; leave {setting} out, and the engine gets the weights with the adapter merged"
        )


def _check_per_reward(config: Config) -> None:
    """Check the parameters that must hold one number per reward: a sequence in the same order, or a dict by name."""
    rewards = [choice.component.name for choice in config.several("train.rewards")]
    for choice in config.choices.values():
        for name in choice.component.declares.get("per_reward", ()):
            key, numbers = f"{choice.component.label}.{name}", choice.params[name]
            place = choice.origins.get(name, key)
            if isinstance(numbers, Mapping):
                for unknown in sorted(set(numbers) - set(rewards)):
                    raise PlanError(
                        f"{place}: {key} names '{unknown}', which is not a reward of this run."
                        f"{nearest(unknown, rewards)} train.rewards names {listing(rewards)}"
                    )
            elif numbers is not None and len(numbers) != len(rewards):
                raise PlanError(
                    f"{place}: {key} has length {len(numbers)}, but train.rewards has length {len(rewards)}; give one"
                    " number for each reward, in the order of train.rewards"
                )
