"""Write a resolved configuration as gin text, with every default spelled out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import attrs

from dovetail.config.parse import RESOLVED
from dovetail.config.resolved import Choice, Config
from dovetail.config.types import literal


@attrs.frozen
class Entry:
    """One value of a resolved configuration, and its origin: `default`, `file:line` or `--set ...`."""

    key: str
    value: Any
    origin: str

    @property
    def group(self) -> str:
        """The section or component that the value belongs to; values of one group are printed together."""
        return self.key.rpartition("/")[2].rpartition(".")[0]

    def __str__(self) -> str:
        return f"{self.key} = {literal(self.value)}"


def explain_origin(config: Config) -> tuple[Entry, ...]:
    """Return every value, in the order of `dump`: settings as declared, then parameters by kind and name."""
    return (*settings(config), *parameters(config.choices.values()))


def settings(config: Config) -> Iterator[Entry]:
    """Yield the values of all sections."""
    for section, values in config.sections.items():
        for field in attrs.fields(type(values)):
            key = f"{section}.{field.name}"
            yield Entry(key, getattr(values, field.name), config.origins[key])


def filled(config: Config) -> Iterator[Entry]:
    """Yield the values of all sections, without empty settings that belong to plugins' kinds.

    A plugin that is installed but not used must leave no trace: the dumped file can then be read where the plugin is
    not installed, and the config id is the same there.
    """
    for entry in settings(config):
        slot = config.schema.slots.get(entry.key)
        kind = config.registry.kinds[slot.kind] if slot else None
        ours = kind is None or kind.path != entry.key or kind.origin.distribution == "dovetail"
        if ours or entry.value or (kind and kind.default):
            yield entry


def parameters(choices: Iterable[Choice]) -> tuple[Entry, ...]:
    """Return the parameters of choices, with keys that resolve to the same choices when they are read again.

    A component's first choice (one without a scope, if there is one) is written without a scope. Of its other choices,
    only the values that differ from the first are written, with their scope.
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
    """Return gin text from which `load` makes an equal configuration, even if defaults have changed since.

    The text is meant for a UTF-8 file. It contains only chosen components, and no macros or includes.
    """
    text = f"{RESOLVED}\n"
    group = ""
    for entry in (*filled(config), *parameters(config.choices.values())):
        if entry.group != group:
            text, group = text + "\n", entry.group
        text += f"{entry}\n"
    return text
