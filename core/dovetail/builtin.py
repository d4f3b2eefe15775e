"""The engine's own plugin: it opens the built-in kinds and sections, and registers the built-in field components."""

from __future__ import annotations

from collections.abc import Callable

from dovetail.hookspecs import hookimpl
from dovetail.kinds import KINDS

SECTIONS: dict[str, tuple[str, str]] = {
    "train": ("Train", "what"),
    "critic": ("Critic", "what"),
    "sft": ("Sft", "what"),
    "sampling": ("Sampling", "what"),
    "eval": ("Eval", "what"),
    "run": ("Run", "where"),
    "mesh": ("Mesh", "where"),
    "memory": ("Memory", "where"),
}
"""The engine's sections: the class in `dovetail.config.settings`, and its purpose (see `Section`)."""


@hookimpl
def dovetail_kinds(register_kind: Callable[..., None]) -> None:
    """Open the built-in kinds."""
    for kind in KINDS:
        register_kind(kind)


@hookimpl
def dovetail_sections(register_section: Callable[..., None]) -> None:
    """Open the engine's sections of a config file."""
    for name, (settings, purpose) in SECTIONS.items():
        register_section(name, f"dovetail.config.settings:{settings}", purpose=purpose)


@hookimpl
def dovetail_components(register: Callable[..., None]) -> None:
    """Register the fields computed in a model's forward pass."""
    register("field", "logps", "dovetail.field.logps:logps")
    register("field", "entropy", "dovetail.field.entropy:entropy")
    register("field", "support_logps", "dovetail.field.support_logps:support_logps")
