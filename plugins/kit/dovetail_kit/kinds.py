"""What the kit must know about a kind: what its components read, what they are compared with, how a config names one.

Everything else in the kit asks these functions, so that a kind that somebody opens is scaffolded, examined and checked
without another list of names.
"""

from __future__ import annotations

import inspect
from typing import Any, Final

from dovetail.config.resolved import ROLES, Role
from dovetail.registry import Kind, current
from dovetail.registry.compatibility import ENGINE

_READ_FIELDS: Final = frozenset(
    {
        "advantage",
        "correction",
        "field",
        "group_filter",
        "kl",
        "loss_agg",
        "policy_loss",
        "reward_shaping",
        "selection",
        "value_loss",
    }
)

_FORMULAS: Final = frozenset(
    {"advantage", "correction", "kl", "loss_agg", "policy_loss", "reward_shaping", "schedule", "value_loss"}
)

_CLASSES: Final = frozenset(
    {
        "adapter",
        "entropy_controller",
        "executor",
        "kl_controller",
        "model",
        "reward_manager",
        "rollout",
        "sampling_preset",
        "sink",
        "task",
        "tokenizer",
    }
)


def reads_fields(kind: Kind) -> bool:
    """Whether the positional parameters of its components name fields of the batch, and not columns or arguments."""
    return kind.name in _READ_FIELDS


def reading_fields() -> tuple[str, ...]:
    """Return the names of the kinds whose components read fields of the batch, sorted."""
    return tuple(kind.name for kind in current().kinds.values() if reads_fields(kind))


def is_formula(kind: Kind) -> bool:
    """Whether its components are formulas, which a docstring can write down."""
    return kind.name in _FORMULAS


def is_class(kind: Kind) -> bool:
    """Whether its components are classes rather than functions."""
    return kind.name in _CLASSES


def is_ours(kind: Kind) -> bool:
    """Whether Dovetail opens it, so that all claims that its components may make are known."""
    return kind.origin.distribution == ENGINE


def protocol_of(kind: Kind) -> type[Any] | None:
    """Return the protocol that its components implement; None if their signature is the whole contract."""
    from dovetail import protocols

    found = (value for value in vars(protocols).values() if getattr(value, "_is_protocol", False))
    return next((p for p in found if inspect.isclass(p) and f"Kind `{kind.name}`" in (p.__doc__ or "")), None)


def settings_of(kind: Kind) -> list[Role]:
    """Return the settings of a config that choose a component of it; none where nothing does."""
    return [role for role in ROLES.values() if role.kind == kind.name]
