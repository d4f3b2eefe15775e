"""What a sweep tries: a grid, values that advance together, random draws, seeds; and what it leaves out."""

from __future__ import annotations

import itertools
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from dovetail.config.types import literal
from dovetail.errors import ConfigError, listing, nearest
from dovetail_lab.sweep.distributions import Distribution
from dovetail_lab.sweep.values import read_value, split_commas

_AXIS = re.compile(r"(?P<key>[A-Za-z_][\w./-]*)\s*=(?!=)\s*(?P<value>.*)", re.DOTALL)
_CONDITION = re.compile(r"(?P<key>[A-Za-z_][\w./-]*)\s*(?P<sign><=|>=|!=|<|>|=)\s*(?P<value>.*)", re.DOTALL)
_SIGNS: Mapping[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
MAX_POINTS = 1_000_000
"""Points that are looked at, excluded ones among them; a space beyond this is a slip of the keyboard."""


@attrs.frozen
class Point:
    """One trial to be: `key=value` overrides and a seed, None for that of the config."""

    overrides: tuple[str, ...]
    seed: int | None = None


@attrs.frozen
class Exclusion:
    """Points to leave out: those that meet every condition of a text such as `train.lr>1e-4,train.policy_loss=ppo`."""

    text: str
    conditions: tuple[tuple[str, str, tuple[Any, ...]], ...]

    @classmethod
    def parse(cls, text: str) -> Exclusion:
        """Read conditions; several values after one `=` mean any of them.

        Raises:
            ConfigError: if a piece is not a condition.
        """
        found: list[tuple[str, str, tuple[Any, ...]]] = []
        for piece in split_commas(text):
            match = _CONDITION.fullmatch(piece)
            if match and match["value"]:
                found.append((match["key"], match["sign"], (read_value(match["value"], f"exclude {text}"),)))
            elif found and found[-1][1] in ("=", "!="):
                key, sign, values = found.pop()
                found.append((key, sign, (*values, read_value(piece, f"exclude {text}"))))
            else:
                raise ConfigError(
                    f"exclude {text}: '{piece}' is not a condition; write key=value, key!=value or key<value"
                )
        if not found:
            raise ConfigError("exclude: it says nothing; write key=value,key=value")
        return cls(text, tuple(found))

    def matches(self, values: Mapping[str, Any]) -> bool:
        """Tell whether a point is to be left out."""
        return all(_holds(values[key], sign, wanted) for key, sign, wanted in self.conditions)


def _holds(value: Any, sign: str, wanted: tuple[Any, ...]) -> bool:
    if sign in ("=", "!="):
        return (value in wanted) == (sign == "=")
    try:
        return all(_SIGNS[sign](value, each) for each in wanted)
    except TypeError:
        return False


@attrs.frozen(kw_only=True)
class Space:
    """All points of a sweep.

    The points are the product of the grid's axes, of the zipped values (which advance together) and of the random
    draws, once for each seed. Seeds vary slowest, so that an aborted sweep has every setting once before any twice.

    Args:
        grid: key -> values.
        zip: key -> values, as many of each.
        random: key -> distribution.
        draws: how many points are drawn; draw `i` does not depend on it.
        draw_seed: another seed gives other draws. It has nothing to do with the seeds of the runs.
        drawn: the draws themselves, where a sampler has made them: key -> value of each.
        sampler: that sampler and its parameters, for the record.
        seeds: `run.seed` of the runs; empty for that of the config.
        exclude: points to leave out.

    >>> space = Space(grid={"train.lr": (1e-3, 1e-4)}, seeds=(0, 1))
    >>> [(point.overrides, point.seed) for point in space.points()][:3]
    [(('train.lr=0.001',), 0), (('train.lr=0.0001',), 0), (('train.lr=0.001',), 1)]
    """

    grid: Mapping[str, tuple[Any, ...]] = attrs.field(factory=dict)
    zip: Mapping[str, tuple[Any, ...]] = attrs.field(factory=dict)
    random: Mapping[str, Distribution] = attrs.field(factory=dict)
    draws: int = 0
    draw_seed: int = 0
    drawn: tuple[Mapping[str, Any], ...] = ()
    sampler: str = ""
    seeds: tuple[int, ...] = ()
    exclude: tuple[Exclusion, ...] = ()

    def __attrs_post_init__(self) -> None:
        self._check_keys()
        lengths = {key: len(values) for key, values in self.zip.items()}
        if len(set(lengths.values())) > 1:
            shown = ", ".join(f"{key} {length}" for key, length in lengths.items())
            raise ConfigError(f"zip: the keys need as many values each, but have {shown}")
        if bool(self.random) != bool(self.draws):
            what = "says how many points to draw, but not of what" if self.draws else "has no number of draws"
            raise ConfigError(f"random: it {what}; write --random 20 key=uniform(0,1), or sweep.draws and sweep.random")
        if any(not values for values in (*self.grid.values(), *self.zip.values())):
            raise ConfigError("the space has no points: an axis has no values")

    @property
    def keys(self) -> tuple[str, ...]:
        """What is varied, in order."""
        return (*self.grid, *self.zip, *self.random)

    def _check_keys(self) -> None:
        keys = self.keys
        twice = sorted({key for key in keys if keys.count(key) > 1})
        if twice:
            raise ConfigError(f"'{twice[0]}' is in two of grid, zip and random; keep one")
        for key in keys:
            if key == "run.seed":
                raise ConfigError("'run.seed' is varied with --seeds, or sweep.seeds")
            if key.startswith(("run.", "sweep.")):
                raise ConfigError(f"'{key}' cannot be varied: it is not part of what a run computes; use --set for all")
        for rule in self.exclude:
            for key, _, _ in rule.conditions:
                if key not in keys:
                    raise ConfigError(
                        f"exclude {rule.text}: '{key}' is not varied.{nearest(key, keys)} {listing(keys)}"
                    )

    def size(self) -> int:
        """How many points there are before any is left out."""
        count = max(len(self.seeds), 1) * max(self.draws, 1)
        for values in self.grid.values():
            count *= len(values)
        return count * len(next(iter(self.zip.values()), (None,)))

    def points(self) -> list[Point]:
        """Return the points, in the order in which they are to be run.

        Raises:
            ConfigError: if there are none, or more than anybody can mean.
        """
        if self.size() > MAX_POINTS:
            raise ConfigError(f"the space has {self.size():,} points; the most is {MAX_POINTS:,}")
        kept = [values for values in self._settings() if not any(rule.matches(values) for rule in self.exclude)]
        if not kept:
            raise ConfigError(f"the space has no points: the exclusions leave none of {self.size():,}")
        overrides = [tuple(f"{key}={literal(value)}" for key, value in values.items()) for values in kept]
        return [Point(each, seed) for seed in self.seeds or (None,) for each in overrides]

    def idle_exclusions(self) -> list[str]:
        """Return the exclusions that leave nothing out: misspelt, more often than not."""
        settings = list(self._settings())
        return [rule.text for rule in self.exclude if not any(rule.matches(values) for values in settings)]

    def _settings(self) -> Iterator[dict[str, Any]]:
        grid = [[(key, value) for value in values] for key, values in self.grid.items()]
        zipped = _rows(self.zip)
        made = self.drawn or [
            {key: form.draw(self.draw_seed, key, index) for key, form in self.random.items()}
            for index in range(self.draws)
        ]
        drawn = [list(each.items()) for each in made] or [[]]
        for cell in itertools.product(*grid):
            for row, draw in itertools.product(zipped, drawn):
                yield dict([*cell, *row, *draw])

    def describe(self) -> dict[str, Any]:
        """Return the space in words of JSON, for the sweep's record and for comparing two of them."""
        sampler = {"sampler": self.sampler} if self.sampler else {}
        return sampler | {
            "grid": {key: [literal(value) for value in values] for key, values in self.grid.items()},
            "zip": {key: [literal(value) for value in values] for key, values in self.zip.items()},
            "random": {key: str(form) for key, form in self.random.items()},
            "draws": self.draws,
            "draw_seed": self.draw_seed,
            "seeds": list(self.seeds),
            "exclude": [rule.text for rule in self.exclude],
        }


def _rows(columns: Mapping[str, tuple[Any, ...]]) -> list[list[tuple[str, Any]]]:
    rows = zip(*columns.values(), strict=True) if columns else [()]
    return [list(zip(columns, row, strict=True)) for row in rows]


def parse_axes(text: str, option: str) -> dict[str, tuple[Any, ...]]:
    """Read `key=value,value,key=value,...`: a piece with `=` begins another key.

    >>> parse_axes("train.lr=1e-3,1e-4,train.policy_loss=ppo,gspo", "--grid")
    {'train.lr': (0.001, 0.0001), 'train.policy_loss': ('ppo', 'gspo')}

    Raises:
        ConfigError: if it begins with no key, has a key twice, or a key without a value.
    """
    axes: dict[str, tuple[Any, ...]] = {}
    key = ""
    for piece in split_commas(text):
        match = _AXIS.fullmatch(piece)
        if match:
            key = match["key"].strip()
            if key in axes:
                raise ConfigError(f"{option} {text}: '{key}' is there twice")
            axes[key] = ()
            piece = match["value"]  # noqa: PLW2901 - what is left of it
        if not key or not piece:
            raise ConfigError(f"{option} {text}: write key=value,value")
        axes[key] = (*axes[key], read_value(piece, f"{option} {key}"))
    if not axes:
        raise ConfigError(f"{option} '{text}': write key=value,value")
    return axes


def parse_random(texts: Sequence[str]) -> tuple[int, dict[str, Distribution]]:
    """Read what follows `--random`: a number of draws, then `key=distribution` texts.

    >>> parse_random(["20", "train.lr=loguniform(1e-6,1e-4)"])[0]
    20

    Raises:
        ConfigError: if it is something else.
    """
    count, *axes = texts or [""]
    if not (count.isdecimal() and len(count) < 19 and int(count)) or not axes:
        raise ConfigError(f"--random {' '.join(texts)}: write a number of draws, then key=distribution, one or more")
    found = {}
    for text in axes:
        match = _AXIS.fullmatch(text.strip())
        if not match:
            raise ConfigError(f"--random: '{text}' is not key=distribution")
        if match["key"] in found:
            raise ConfigError(f"--random: '{match['key']}' is there twice")
        found[match["key"]] = Distribution.parse(match["value"], match["key"])
    return int(count), found


def parse_seeds(text: str | int | Iterable[int]) -> tuple[int, ...]:
    """Read seeds: `5` is the first five, `2:5` is 2, 3 and 4, `0,7` is these two.

    >>> parse_seeds("3"), parse_seeds("2:5"), parse_seeds("0,7")
    ((0, 1, 2), (2, 3, 4), (0, 7))

    Raises:
        ConfigError: if it is none of these, or names a seed twice.
    """
    if isinstance(text, str):
        first, colon, last = text.partition(":")
        numbers = [part.strip() for part in ((first, last) if colon else text.strip().strip(",").split(","))]
        if not all(number.isdecimal() and len(number) < 19 for number in numbers):
            raise ConfigError(f"seeds '{text}': write a number of seeds, first:end, or a list such as 0,7")
        whole = [int(number) for number in numbers]
        alone = not colon and "," not in text
        seeds = range(whole[0]) if alone else range(*whole) if colon else whole
    else:
        seeds = range(text) if isinstance(text, int) else text
    if isinstance(seeds, range) and seeds.stop - seeds.start > MAX_POINTS:
        raise ConfigError(f"seeds '{text}': these are more than {MAX_POINTS:,}")
    seeds = tuple(seeds)
    if not seeds or any(seed < 0 for seed in seeds):
        raise ConfigError(f"seeds '{text}': there are none, or negative ones")
    if len(set(seeds)) < len(seeds):
        raise ConfigError(f"seeds '{text}': one of them is there twice")
    return seeds
