"""The values in which two configurations differ."""

from __future__ import annotations

from dovetail.config.dump import explain_origin
from dovetail.config.resolved import Config
from dovetail.config.types import literal


def difference(a: Config, b: Config) -> list[str]:
    """Return a line for each value that differs, such as `train.lr = 0.0001 -> 0.001`.

    A parameter of a component that only one of the two chooses is `(none)` in the other.
    """
    left, right = _values(a), _values(b)
    keys = dict.fromkeys(entry.key for config in (a, b) for entry in explain_origin(config))
    pairs = [(key, _value(left, key), _value(right, key)) for key in keys]
    return [f"{key} = {before} -> {after}" for key, before, after in pairs if before != after]


def _values(config: Config) -> dict[str, str]:
    return {entry.key: literal(entry.value) for entry in explain_origin(config)}


def _value(values: dict[str, str], key: str) -> str:
    """Return the value of a key or, if a scoped key has none, of the key without its scope."""
    return values.get(key) or values.get(key.rpartition("/")[2], "(none)")
