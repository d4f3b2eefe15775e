"""The design of an A/B test: the arms, the metric and the looks, all fixed before the first run."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal

import attrs

from dovetail.errors import ConfigError, listing, nearest
from dovetail_lab.ab.sequential import deciding_looks, look_sizes
from dovetail_lab.ab.verdict import Lost
from dovetail_lab.recorded import value_of
from dovetail_lab.sweep import Point
from dovetail_lab.sweep.values import split_commas

Goal = Literal["max", "min"]
LOST = ("leave_out", "worst")
ALPHA = 0.05
TYPES: Final[Mapping[str, Any]] = {
    "arms": dict[str, tuple[str, ...]],
    "control": str,
    "metric": str,
    "goal": Goal,
    "window": str,
    "min_effect": float,
    "seeds": tuple[int, ...],
    "stop_rule": str,
    "alpha": float,
    "lost": Lost,
}
"""What a registered design consists of."""
MOST_LOOKS = 100
FEW_PAIRS = 6
"""Below it the exact sign-flip test cannot reach 5 %."""


@attrs.frozen(kw_only=True)
class Arm:
    """A named variant: `key=value` overrides of the config, none for the config itself."""

    name: str
    overrides: tuple[str, ...] = ()

    @property
    def in_full(self) -> str:
        """What it sets."""
        return " ".join(self.overrides) or "the config itself"

    @classmethod
    def parse(cls, text: str) -> Arm:
        """Read `name:key=value,key=value`; commas within brackets or quotes are part of a value.

        >>> Arm.parse("dual:train.policy_loss=ppo,policy_loss.ppo.clip_c=3.0").overrides
        ('train.policy_loss=ppo', 'policy_loss.ppo.clip_c=3.0')

        Raises:
            ConfigError: if it is something else.
        """
        name, _, rest = text.partition(":")
        return cls.of(name.strip(), split_commas(rest))

    @classmethod
    def of(cls, name: str, overrides: Iterable[str]) -> Arm:
        """Check a name and overrides.

        Raises:
            ConfigError: if they are not a name and overrides.
        """
        if not re.fullmatch(r"[A-Za-z0-9_][\w.+-]*", name):
            raise ConfigError(f"arm '{name}': write NAME:KEY=VALUE,KEY=VALUE, or NAME alone for the config itself")
        for override in overrides:
            key, sign, value = override.partition("=")
            if not (key.strip() and sign and value.strip()):
                raise ConfigError(f"arm {name}: '{override}' is not KEY=VALUE")
            if key.strip().startswith(("run.", "sweep.", "ab.")):
                raise ConfigError(f"arm {name}: '{key}' is not part of what a run computes; use --set for all arms")
        return cls(name=name, overrides=tuple(overrides))


@attrs.frozen
class Window:
    """The values of a learning curve whose mean is a run's result.

    `last` is the last value; `last5` the last five; `last10%` those of the last tenth of the steps; `all` all values.
    """

    text: str = "last10%"

    def __attrs_post_init__(self) -> None:
        count, percent = self._parts(self.text)
        if self.text != "all" and not (count > 0 and (not percent or count <= 100)):
            raise ConfigError(f"window '{self.text}': write last, last5, last10% or all")

    @staticmethod
    def _parts(text: str) -> tuple[float, bool]:
        match = re.fullmatch(r"last(?:(\d+)|(\d+(?:\.\d+)?)%)?", text)
        if not match:
            return 0, False
        return (float(match[2]), True) if match[2] else (float(match[1] or 1), False)

    def steps(self, recorded: Sequence[int], total: int) -> tuple[int, ...]:
        """Return those of the recorded steps that are in the window, for a run of `total` steps.

        >>> Window("last10%").steps([0, 25, 50, 75, 95, 100], 100), Window("last2").steps([0, 25, 50], 50)
        ((95, 100), (25, 50))
        """
        ordered = sorted(set(recorded))
        if self.text == "all":
            return tuple(ordered)
        count, percent = self._parts(self.text)
        if percent:
            return tuple(step for step in ordered if step > total * (1 - count / 100)) or tuple(ordered[-1:])
        return tuple(ordered[-int(count) :])

    def of(self, curve: Iterable[tuple[int, float]], total: int) -> float:
        """Return a curve's result; NaN if it has no values."""
        values = dict(curve)
        chosen = [values[step] for step in self.steps(list(values), total)]
        return math.fsum(chosen) / len(chosen) if chosen else math.nan


@attrs.frozen(kw_only=True)
class Design:
    """The design to register before the first run.

    Attributes:
        arms: the arms, beginning with the control.
        metric: the primary metric.
        goal: whether higher values are better.
        window: the values of the metric that count.
        min_effect: the least difference that matters, in the metric's unit.
        seeds: the seeds in the order in which they run; each gives one pair of runs per arm.
        looks: number of times at which the data are analysed, including the end.
        alpha: probability of any false `better` or `worse`, over all arms and looks.
        lost: the treatment of a run without a result: its pair is left out, or it gets the worst result of both arms.
    """

    arms: tuple[Arm, ...]
    metric: str
    goal: Goal = "max"
    window: Window = Window()
    min_effect: float = 0.0
    seeds: tuple[int, ...]
    looks: int = 1
    alpha: float = ALPHA
    lost: Lost = "leave_out"

    def __attrs_post_init__(self) -> None:
        names = [arm.name for arm in self.arms]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ConfigError(f"arm '{twice[0]}' is there twice; names must differ")
        if len(names) < 2:
            raise ConfigError(f"an A/B test compares two arms or more, {len(names)} given; write --arm NAME:KEY=VALUE")
        if not 0 <= self.min_effect < math.inf:
            raise ConfigError(f"--min-effect {self.min_effect}: a number from 0 on, in the unit of {self.metric}")
        if not 0 < self.alpha < 1:
            raise ConfigError(f"--alpha {self.alpha}: a number between 0 and 1")
        if self.lost not in LOST:
            raise ConfigError(f"--lost {self.lost}: write {' or '.join(LOST)}")
        if self.looks > MOST_LOOKS:
            raise ConfigError(f"{self.looks} looks: at most {MOST_LOOKS}; their level takes long to compute, and falls")
        if not 1 <= self.looks <= len(self.seeds):
            raise ConfigError(f"{self.looks} looks at {len(self.seeds)} pairs: from 1 to as many looks as pairs")

    @property
    def control(self) -> Arm:
        """The arm that the others are compared with."""
        return self.arms[0]

    @property
    def treatments(self) -> tuple[Arm, ...]:
        """The other arms."""
        return self.arms[1:]

    @property
    def look_sizes(self) -> tuple[int, ...]:
        """The numbers of pairs after which the data are analysed: the planned looks that are able to decide."""
        return deciding_looks(self.planned_looks, self.alpha / len(self.treatments))

    @property
    def planned_looks(self) -> tuple[int, ...]:
        """The numbers of pairs at the looks of the stop rule."""
        return look_sizes(len(self.seeds), self.looks)

    def arm(self, name: str) -> Arm:
        """Return an arm by its name.

        Raises:
            ConfigError: if there is none, with the nearest name.
        """
        for arm in self.arms:
            if arm.name == name:
                return arm
        names = [arm.name for arm in self.arms]
        raise ConfigError(f"there is no arm '{name}'.{nearest(name, names)} Arms: {listing(names)}")

    def with_control(self, name: str) -> Design:
        """Return the same design with another arm in front."""
        first = self.arm(name)
        return attrs.evolve(self, arms=(first, *(arm for arm in self.arms if arm is not first)))

    def points(self) -> list[tuple[Arm, Point]]:
        """Return the runs in the order in which they start.

        Pairs are completed one after another, so that an abort leaves complete pairs. The first arm rotates, so that no
        arm always has the cold start.
        """
        runs = []
        for turn, seed in enumerate(self.seeds):
            first = turn % len(self.arms)
            runs += [(arm, Point(arm.overrides, seed)) for arm in (*self.arms[first:], *self.arms[:first])]
        return runs

    def to_json(self) -> dict[str, Any]:
        """Return the design as JSON, under the names of the command line."""
        return {
            "arms": {arm.name: list(arm.overrides) for arm in self.arms},
            "control": self.control.name,
            "metric": self.metric,
            "goal": self.goal,
            "window": self.window.text,
            "min_effect": self.min_effect,
            "seeds": list(self.seeds),
            "stop_rule": self.stop_rule,
            "alpha": self.alpha,
            "lost": self.lost,
        }

    @property
    def stop_rule(self) -> str:
        """When it ends: `fixed`, or `pocock:LOOKS`."""
        return "fixed" if self.looks == 1 else f"pocock:{self.looks}"

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Design:
        """Read back what `to_json` wrote.

        Raises:
            KeyError: if something is not there.
            ValueError: if it is of another type.
            ConfigError: if it is not a design.
        """
        found = {name: value_of(hint, record[name], name) for name, hint in TYPES.items()}
        arms = tuple(Arm.of(name, overrides) for name, overrides in found.pop("arms").items())
        control, looks = found.pop("control"), parse_stop_rule(found.pop("stop_rule"))
        return cls(**found | {"arms": arms, "window": Window(found["window"]), "looks": looks}).with_control(control)


def parse_stop_rule(text: str) -> int:
    """Return the number of looks of `fixed` or `pocock:4`.

    >>> parse_stop_rule("fixed"), parse_stop_rule("pocock:4")
    (1, 4)

    Raises:
        ConfigError: if there is no such rule.
    """
    if text == "fixed":
        return 1
    match = re.fullmatch(r"pocock:(\d+)", text)
    if not match or not int(match[1]):
        raise ConfigError(f"--sequential {text}: write pocock:LOOKS, such as pocock:4")
    return int(match[1])


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Say where two registered designs differ, one text for each entry.

    >>> changes({"metric": "a", "alpha": 0.05}, {"metric": "b", "alpha": 0.05})
    ['metric: a -> b']
    """
    keys = dict.fromkeys((*before, *after))
    return [f"{key}: {before.get(key)} -> {after.get(key)}" for key in keys if before.get(key) != after.get(key)]
