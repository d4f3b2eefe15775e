"""Render configurations for people to read: one with the origin of each value, or the differences between two."""

from __future__ import annotations

from dovetail.config.dump import explain_origin
from dovetail.config.resolved import Config
from dovetail.config.types import literal

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
        lines += ["", "# Not used:"]
        lines += [f"# {unused}" for unused in config.unused]
    return "\n".join(lines) + "\n"


def difference(a: Config, b: Config) -> list[str]:
    """Return a line for each value that differs, such as `train.lr = 0.0001 -> 0.001`.

    A parameter of a component that only one of the two chooses is `(none)` in the other.
    """
    left, right = _values(a), _values(b)
    keys = dict.fromkeys(entry.key for config in (a, b) for entry in explain_origin(config))
    pairs = [(key, _value(left, key), _value(right, key)) for key in keys]
    return [f"{key} = {before} -> {after}" for key, before, after in pairs if before != after]


def render_diff(a: Config, b: Config) -> str:
    """Return the differences as text, or say that there are none."""
    return "\n".join(difference(a, b) or ["no difference"]) + "\n"


def _values(config: Config) -> dict[str, str]:
    return {entry.key: literal(entry.value) for entry in explain_origin(config)}


def _value(values: dict[str, str], key: str) -> str:
    """Return the value of a key or, if a scoped key has none, of the key without its scope."""
    return values.get(key) or values.get(key.rpartition("/")[2], "(none)")
