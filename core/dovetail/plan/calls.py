"""The calls of a step: the components that a configuration chooses, for every kind with a stage."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from dovetail.kinds import STAGE, STAGES, Kind
from dovetail.plan.compared import compared, likened
from dovetail.plan.plan import Call
from dovetail.plan.roles import CRITIC, OLD
from dovetail.registry import Component, Origin

if TYPE_CHECKING:
    from dovetail.config import Config

LIVE: Final = "logps"
"""A component that reads this field sees the policy being trained, which exists only in the update."""


def entropy_bonus(entropy: Any) -> Any:
    """Return -H per token, so that a positive coefficient rewards entropy; H itself is logged."""
    return -entropy, {"mean": entropy}


ENTROPY: Final = Kind(
    name="entropy",
    summary="entropy -> per-token loss",
    stage="loss_terms",
    reads="fields",
    term=True,
    coefficient="train.entropy_coef",
)
"""The entropy bonus is a term like any other, except that only its coefficient can be chosen."""

_BONUS: Final = Component(
    kind="entropy", name="entropy_bonus", target=entropy_bonus, origin=Origin("dovetail", "", __name__)
)


def calls(config: Config) -> tuple[Call, ...]:
    """Return the calls of a step except for the critic's, stage by stage."""
    found = [*_chosen(config)]
    if not stays_zero(ENTROPY, config):
        found.append(
            Call(path="train.entropy_coef", kind=ENTROPY, component=_BONUS, stage=STAGE["loss_terms"], term=True)
        )
    order = [stage.name for stage in STAGES]
    return tuple(sorted(found, key=lambda call: order.index(call.stage.name)))


def critic_calls(config: Config) -> tuple[Call, ...]:
    """Return the calls of the critic's updates."""
    kinds = config.registry.kinds

    def call(role: str, stage: str) -> Call:
        choice = config.choice(f"critic.{role}")
        return Call(
            path=f"critic.{role}",
            kind=kinds[role],
            component=choice.component,
            stage=STAGE[stage],
            model=CRITIC,
            term=stage == "loss_terms",
        )

    return call("loss_agg", "mini_batch"), call("value_loss", "loss_terms")


def _chosen(config: Config) -> Iterator[Call]:
    like = compared(config)
    for kind in config.registry.kinds.values():
        if kind.stage is None or kind.path is None or stays_zero(kind, config):
            continue
        stage = STAGE[_moved(kind, config) or kind.stage]
        for choice in config.several(kind.path):
            component = choice.component
            # a component that reads the policy being trained cannot run before the update
            beside = stage.level == "batch" and not kind.term and LIVE in component.reads and kind.writes[0] == WEIGHTS
            yield Call(
                path=kind.path,
                kind=kind,
                component=component,
                stage=STAGE["loss_terms"] if beside else stage,
                term=kind.term,
                renames=({LIVE: OLD + LIVE} if stage.name != kind.stage else {}) | likened(component.reads, like),
            )


WEIGHTS: Final = "loss_weights"


def _moved(kind: Kind, config: Config) -> str | None:
    for setting, where in kind.moved.items():
        if config.setting(setting) in where:
            return where[config.setting(setting)]
    return None


def stays_zero(kind: Kind, config: Config) -> bool:
    """Whether the coefficient of a kind's terms is 0 and nothing will change that, so that they are not computed."""
    if kind.coefficient is None or config.setting(kind.coefficient) != 0:
        return False
    controller = config.choices.get(f"{kind.coefficient.removesuffix('_coef')}_controller")
    return controller is None or not {"constant", "keeps_zero"}.isdisjoint(controller.declares)
