"""Configs and plans as text for people to read."""

from __future__ import annotations

from collections.abc import Iterable

from dovetail.config import Config, explain_origin, in_few_lines
from dovetail.kinds import STAGES
from dovetail.kinds.stages import Stage
from dovetail.plan import Call, Plan
from dovetail_kit.difference import difference

_WIDEST = 60


def render_show(config: Config) -> str:
    """Return every value with its origin as a comment, then the unused bindings; the text is itself a valid config."""
    entries = explain_origin(config)
    width = min(max(len(str(entry)) for entry in entries), _WIDEST)
    lines = []
    group = entries[0].group
    for entry in entries:
        if entry.group != group:
            lines.append("")
            group = entry.group
        lines.append(f"{entry!s:<{width}}  # {entry.origin}")
    if config.unused:
        lines += ["", *(f"# {line}" for line in in_few_lines(config.unused))]
    return "\n".join(lines) + "\n"


def render_diff(a: Config, b: Config) -> str:
    """Return the differences as text, or say that there are none."""
    return "\n".join(difference(a, b) or ["no difference"]) + "\n"


def by_stage(plan: Plan) -> Iterable[tuple[Stage, list[str]]]:
    """Yield every stage with a description of each pass and call in it."""
    for stage in STAGES:
        live = {"passes": False, "loss_terms": True}.get(stage.name)
        passes = [str(each) for each in plan.passes if each.live == live]
        yield stage, passes + [_said(call, plan) for call in plan.calls if call.stage == stage]


def _said(call: Call, plan: Plan) -> str:
    """Return a call and what it provides; of what it may leave out, only what something reads."""
    first, more = call.kind.writes[:1], call.kind.writes[1:]
    written = ", ".join([*first, *(field for field in more if field in plan)])
    return call.label + (f" -> {written}" if written and not call.term else "")
