"""Presets: components whose parameters are values for the settings of the section that chooses them."""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.config.problems import Problems
from dovetail.config.resolved import DEFAULT, Choice
from dovetail.config.schema import Schema, fields_of
from dovetail.config.sections import Sections
from dovetail.config.types import Mismatch, fit
from dovetail.errors import listing, nearest

KIND = "sampling_preset"


def apply_presets(sections: Sections, schema: Schema, choices: Mapping[str, Choice], problems: Problems) -> None:
    """Set each setting that still has its default to the value of its section's preset, if the preset has one."""
    for path, choice in choices.items():
        if path not in schema.slots or schema.slots[path].kind != KIND:
            continue
        section, who = schema.slots[path].section, f"{choice.component.label} of {choice.component.origin}"
        hints = fields_of(schema.sections[section])
        for name, value in choice.params.items():
            setting, known = f"{section}.{name}", sections.values[section]
            if name not in known:
                problems.add(
                    sections.origins[path],
                    f"{who} sets '{name}', which {section} does not have.{nearest(name, known)} Settings:"
                    f" {listing(known)}",
                )
            elif sections.origins[setting] == DEFAULT:
                try:
                    known[name], sections.origins[setting] = fit(value, hints[name][0]), choice.component.label
                except Mismatch as error:
                    problems.add(sections.origins[path], f"{who} sets '{name}': {error}")
