"""Random values of a hyperparameter, from a counter instead of a stream.

Draw `i` of a key depends on the seed, the key and `i` alone, so a sweep of 40 draws begins with the 20 that it had
before, and another hyperparameter beside it changes none of its values.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from numbers import Integral, Real
from typing import Any

import attrs

from dovetail.errors import ConfigError, listing, nearest
from dovetail_lab.sweep.values import read_value, split_commas

DIGITS = 6
"""Significant digits of a drawn number: short enough to read, fine enough for any hyperparameter."""


def uniform01(seed: int, key: str, index: int) -> float:
    """Return a number in [0, 1) that is a function of its arguments: the first 53 bits of their SHA-256.

    >>> uniform01(0, "train.lr", 0) == uniform01(0, "train.lr", 0) != uniform01(0, "train.lr", 1)
    True
    """
    digest = hashlib.sha256(f"dovetail draw 1\n{seed}\n{key}\n{index}".encode()).digest()
    return (int.from_bytes(digest[:8], "big") >> 11) / 2.0**53


def _uniform(share: float, low: float, high: float) -> float:
    return round_number(low + share * (high - low))


def _loguniform(share: float, low: float, high: float) -> float:
    return round_number(low * (high / low) ** share)


def _int(share: float, low: int, high: int) -> int:
    return min(low + int(share * (high - low + 1)), high)


def _choice(share: float, *options: Any) -> Any:
    return options[min(int(share * len(options)), len(options) - 1)]


def round_number(value: float) -> float:
    """Return a number as short as a sweep writes it."""
    return float(f"{value:.{DIGITS}g}")


FORMS: Mapping[str, Callable[..., Any]] = {
    "choice": _choice,
    "int": _int,
    "loguniform": _loguniform,
    "uniform": _uniform,
}


@attrs.frozen
class Distribution:
    """`loguniform(low, high)`, `uniform(low, high)`, `int(low, high)` with both ends, or `choice(a, b, ...)`."""

    form: str
    arguments: tuple[Any, ...]

    @classmethod
    def parse(cls, text: str, key: str) -> Distribution:
        """Read a distribution; `key` is what it is for, named in a complaint.

        >>> Distribution.parse("loguniform(0.05, 0.4)", "policy_loss.ppo.epsilon")
        Distribution(form='loguniform', arguments=(0.05, 0.4))

        Raises:
            ConfigError: if it is not one, or its arguments are not a range.
        """
        form, bracket, rest = text.strip().partition("(")
        form = form.strip()
        if not bracket or not rest.endswith(")") or form not in FORMS:
            raise ConfigError(
                f"random {key}: '{text}' is not a distribution.{nearest(form, FORMS)} Write one of"
                f" {listing(f'{name}(...)' for name in FORMS)}"
            )
        arguments = tuple(read_value(part, f"random {key}") for part in split_commas(rest[:-1]))
        made = cls(form, arguments)
        complaint = made._complaint()
        if complaint:
            raise ConfigError(f"random {key}: {text}: {complaint}")
        return made

    def _complaint(self) -> str:
        if self.form == "choice":
            return "" if self.arguments else "name at least one option"
        wanted = (int,) if self.form == "int" else (int, float)
        numbers = [x for x in self.arguments if type(x) in wanted and math.isfinite(x)]
        if len(self.arguments) != 2 or len(numbers) != 2:
            return f"needs two {'whole ' if self.form == 'int' else ''}numbers, the lowest and the highest"
        low, high = numbers
        if low >= high:
            return f"the lowest, {low:g}, is not below the highest, {high:g}"
        return "both ends must be above 0" if self.form == "loguniform" and low <= 0 else ""

    def draw(self, seed: int, key: str, index: int) -> Any:
        """Return draw number `index`.

        >>> Distribution("int", (1, 3)).draw(0, "train.epochs", 0) in (1, 2, 3)
        True
        """
        return self.at(uniform01(seed, key, index))

    def at(self, share: float) -> Any:
        """Return the value with a share of the distribution below it, 0 to 1; the highest one for 1.

        >>> Distribution("loguniform", (1e-4, 1e-2)).at(0.5), Distribution("choice", ("a", "b")).at(0.5)
        (0.001, 'b')
        """
        return FORMS[self.form](share, *self.arguments)

    def allows(self, value: Any) -> bool:
        """Return whether a value can be drawn, up to the digits that a sweep writes.

        >>> Distribution("uniform", (0.1, 0.2)).allows(0.2), Distribution("int", (1, 3)).allows(2.5)
        (True, False)
        """
        if self.form == "choice":
            return value in self.arguments
        low, high = self.arguments
        if self.form == "int":
            return isinstance(value, Integral) and low <= value <= high
        return isinstance(value, Real) and min(low, round_number(low)) <= value <= max(high, round_number(high))

    def __str__(self) -> str:
        return f"{self.form}({', '.join(map(str, self.arguments))})"
