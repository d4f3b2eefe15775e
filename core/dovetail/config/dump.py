"""A resolved configuration as gin text, every default spelled out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import attrs

from dovetail.config.parse import RESOLVED
from dovetail.config.resolved import Choice, Config
from dovetail.config.types import literal


@attrs.frozen
class Entry:
    """One value of a resolved configuration, and where it comes from: `default`, `file:line` or `--set ...`."""

    key: str
    value: Any
    origin: str

    @property
    def group(self) -> str:
        """What it is printed with: its section, or its component."""
        return self.key.rpartition("/")[2].rpartition(".")[0]

    def __str__(self) -> str:
        return f"{self.key} = {literal(self.value)}"


def explain_origin(config: Config) -> tuple[Entry, ...]:
    """Return every value in the order of `dump`: settings as they are declared, then parameters by kind and name."""
    return (*settings(config), *parameters(config.choices.values()))


def settings(config: Config) -> Iterator[Entry]:
    """Yield the sections' values."""
    for section, values in config.sections.items():
        for field in attrs.fields(type(values)):
            key = f"{section}.{field.name}"
            yield Entry(key, getattr(values, field.name), config.origins[key])


def filled(config: Config) -> Iterator[Entry]:
    """Yield the sections' values, without the settings of plugins' kinds that choose nothing.

    A plugin that is installed and not used leaves no trace: neither in a file that has to be read where it is not
    installed, nor in the id of a run that is the same there.
    """
    for entry in settings(config):
        slot = config.schema.slots.get(entry.key)
        kind = config.registry.kinds[slot.kind] if slot else None
        ours = kind is None or kind.path != entry.key or kind.origin.distribution == "dovetail"
        if ours or entry.value or (kind and kind.default):
            yield entry


def parameters(choices: Iterable[Choice]) -> tuple[Entry, ...]:
    """Return the parameters of choices, under selectors that give them back.

    The first choice of a component, one without scope if there is any, is written without scope; the others only where
    they differ from it, with their scope.
    """
    entries: dict[str, Entry] = {}
    first: dict[str, Choice] = {}
    for choice in sorted(choices, key=lambda choice: (choice.component.label, choice.scope)):
        label = choice.component.label
        known = first.setdefault(label, choice)
        for name, value in choice.params.items():
            if known is choice:
                key = f"{label}.{name}"
            elif name not in known.params or literal(known.params[name]) != literal(value):
                key = f"{choice.scope}/{label}.{name}"
            else:
                continue
            entries[key] = Entry(key, value, choice.origins[name])
    return tuple(entries.values())


def dump(config: Config) -> str:
    """Return gin text from which `load` makes an equal configuration, whatever the defaults are by then.

    Text for files in UTF-8. Only chosen components are in it, and no macros or includes.
    """
    text = f"{RESOLVED}\n"
    group = ""
    for entry in (*filled(config), *parameters(config.choices.values())):
        if entry.group != group:
            text, group = text + "\n", entry.group
        text += f"{entry}\n"
    return text
