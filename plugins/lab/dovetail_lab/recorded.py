"""Reads what runs, sweeps and A/B tests have recorded, which somebody else may have written: every value is checked."""

from __future__ import annotations

import json
import math
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import attrs

from dovetail.config.types import Mismatch, fit
from dovetail.errors import RunError, listing, nearest
from dovetail.run.files import records

ABOUT: Final = ("phase", "step")
LARGEST: Final = 1 << 53
"""Steps are below it: greater whole numbers are not exact in a picture."""
LATEST: Final = 1e11
"""In seconds since 1970: what a calendar can show."""
BEYOND: Final = 10**300
"""Whole numbers up to it can be drawn."""

WHY_ALIKE: Final = (
    "Do the {what} differ in what is computed? With one update per step, many losses have the same gradient."
)
"""What to ask where runs that should differ have recorded the same numbers; see `digits`."""

T = TypeVar("T")


def figures(file: Path, phase: str | None = None) -> list[dict[str, Any]]:
    """Return records of figures by step, as in `metrics.jsonl`; null, as others write an undefined figure, is NaN.

    Raises:
        RunError: at a line that is something else, with its number.
    """
    found = []
    for place, line in _steps(file):
        for key, value in line.items():
            if key == "phase":
                continue
            if value is None:
                line[key] = math.nan
            elif not _is_figure(value):
                raise RunError(f"{place}: {key!r} is {value!r:.80}, not a number or null; restore the file")
        if phase is None or line.get("phase") == phase:
            found.append(line)
    return found


def prompts(file: Path) -> list[dict[str, Any]]:
    """Return the values of all prompts by metric, of each evaluation of the RL phase, as in `eval.jsonl`.

    What is not finite is NaN.

    Raises:
        RunError: at a line that is something else, with its number.
    """
    found = []
    for place, line in _steps(file):
        for key, values in line.items():
            if key in ABOUT:
                continue
            if not isinstance(values, list) or not all(value is None or _is_figure(value) for value in values):
                raise RunError(f"{place}: {key!r} is {values!r:.80}, not a list of numbers; restore the file")
            line[key] = [value if value is not None and math.isfinite(value) else math.nan for value in values]
        if line.get("phase") == "rl":
            found.append(line)
    return found


def samples(file: Path) -> list[dict[str, Any]]:
    """Return the completions of the RL phase, as in `samples.jsonl`; of an episode, its messages are records.

    Raises:
        RunError: at a line that is something else, with its number.
    """
    found = []
    for place, line in _steps(file):
        for key, what, fits in (("messages", "records", _is_record), ("turn_rewards", "numbers", _is_figure)):
            values = line.get(key, [])
            if not isinstance(values, list) or not all(map(fits, values)):
                raise RunError(f"{place}: {key!r} is {values!r:.80}, not a list of {what}; restore the file")
        if not isinstance(line.get("columns", {}), dict):
            raise RunError(f"{place}: 'columns' is {line['columns']!r:.80}, not a record; restore the file")
        if not _is_figure(line.get("score", 0.0)):
            line["score"] = None
        if line.get("phase") == "rl":
            found.append(line)
    return found


def digits(lines: Sequence[Mapping[str, Any]]) -> str:
    """Return records as text, in which NaN equals NaN: runs with the same text have recorded the same numbers.

    >>> digits([{"step": 1, "loss": math.nan}]) == digits([{"step": 1, "loss": math.nan}])
    True
    """
    return json.dumps(lines)


def _is_figure(value: Any) -> bool:
    return isinstance(value, float) or (isinstance(value, int) and abs(value) <= BEYOND)


def _is_record(value: Any) -> bool:
    return isinstance(value, dict)


def _steps(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the records of a file with their places; each has a step."""
    for number, line in enumerate(records(file), 1):
        step = line.get("step")
        if type(step) is not int or not 0 <= step < LARGEST:
            raise RunError(f"{file}:{number}: 'step' is {step!r:.80}, not a whole number from 0 on; restore the file")
        yield f"{file}:{number}", line


def fitted(cls: type[T], record: Any) -> T:
    """Return an object of an attrs class from JSON, with its fields by name.

    Raises:
        ValueError: if a field is not there, or a value is not of the field's type.
    """
    if not isinstance(record, Mapping):
        raise ValueError(f"{record!r:.80} where an object was expected")
    hints = typing.get_type_hints(cls, include_extras=True)
    fields: Mapping[str, Any] = attrs.fields_dict(cls)  # pyright: ignore[reportArgumentType] - an attrs class
    for name in record:
        if name not in fields:
            raise ValueError(
                f"{name!r:.80} is not a field of it.{nearest(str(name), fields)} Fields: {listing(fields)}"
            )
    for name, field in fields.items():
        if name not in record and field.default is attrs.NOTHING:
            raise ValueError(f"{name!r} is missing")
    return cls(**{name: value_of(hints[name], value, name) for name, value in record.items()})


def value_of(hint: Any, value: Any, name: str) -> Any:
    """Return a value of JSON as the type that it is to have.

    Raises:
        ValueError: if it is not of that type.
    """
    try:
        return fit(value, hint)
    except Mismatch as error:
        raise ValueError(f"{name}: {error}") from None
    except RecursionError:
        raise ValueError(f"{name}: too many brackets in brackets") from None
