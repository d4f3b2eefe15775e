"""Trials: points of a space that were read and planned, each with the id of its run."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from dovetail.config import Config, floats, load, run_id
from dovetail.config.types import literal
from dovetail.errors import ConfigError, DovetailError
from dovetail.protocols import Task
from dovetail_lab.sweep.names import short_names
from dovetail_lab.sweep.space import Point
from dovetail_lab.sweep.values import read_value

SHOWN_PROBLEMS = 10


@attrs.frozen(kw_only=True)
class Trial:
    """One run of a sweep.

    Attributes:
        overrides: `key=value` texts that make it differ from the others.
        seed: its `run.seed`.
        id: its run id, which is also the name of its folder.
        group: trials of one group differ in numbers that are traced, so that they share their executables.
        names: key -> what it is called among the trials of its sweep (see `short_names`); it is not recorded.
    """

    overrides: tuple[str, ...]
    seed: int
    id: str
    group: str
    names: Mapping[str, str] = attrs.field(factory=dict, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        """Refuse an id that is not the name of a folder; a record from a stranger may have one."""
        if self.id in ("", ".", "..") or "/" in self.id or "\0" in self.id:
            raise ValueError(f"{self.id!r} cannot be the id of a run")

    @property
    def config_id(self) -> str:
        """The id that trials of several seeds have in common."""
        return self.id.rpartition("-s")[0]

    @property
    def values(self) -> dict[str, str]:
        """What it varies: key -> value as text, without quotes."""
        pairs = (override.partition("=") for override in self.overrides)
        return {key: value.strip("'") for key, _, value in pairs}

    @property
    def settings(self) -> dict[str, Any]:
        """What it varies: key -> value, as the config has it.

        >>> Trial(overrides=("train.lr=1e-05", "train.policy_loss='gspo'"), seed=0, id="a-s0", group="g").settings
        {'train.lr': 1e-05, 'train.policy_loss': 'gspo'}
        """
        pairs = (override.partition("=") for override in self.overrides)
        return {key: read_value(value, key) for key, _, value in pairs}

    @property
    def setting(self) -> str:
        """What it varies but for the seed, on one line, each key by its short name; empty for the config itself."""
        names = self.names or short_names(self.values)
        return " ".join(f"{names.get(key, key)}={value}" for key, value in self.values.items())

    @property
    def label(self) -> str:
        """What it varies on one line, each key by its short name.

        >>> Trial(overrides=("train.lr=0.1", "train.policy_loss='gspo'"), seed=3, id="a-s3", group="g").label
        'lr=0.1 policy_loss=gspo seed=3'
        """
        return f"{self.setting} seed={self.seed}".lstrip()

    def record(self) -> dict[str, Any]:
        """Return what a sweep's folder keeps of it."""
        return attrs.asdict(self, filter=attrs.filters.exclude("names"))


@attrs.frozen(kw_only=True)
class Planned:
    """Trials in the order in which they are to run.

    Attributes:
        base: the config without any of the overrides, or None where that is not a config by itself.
        trials: the trials.
        configs: their configs, by id.
        by_point: the trial of each point; two points that come to the same run have one trial.
    """

    base: Config | None
    trials: tuple[Trial, ...]
    configs: Mapping[str, Config]
    by_point: Mapping[Point, Trial]

    @property
    def merged(self) -> tuple[tuple[Point, Trial], ...]:
        """Points that come to the run of an earlier point."""
        first: dict[str, Point] = {}
        for point, trial in self.by_point.items():
            first.setdefault(trial.id, point)
        return tuple((point, trial) for point, trial in self.by_point.items() if first[trial.id] != point)


def plan_trials(
    path: str | os.PathLike[str] | None,
    sets: Sequence[str],
    points: Iterable[Point],
    *,
    max_trials: int = 1000,
) -> Planned:
    """Read and plan the run of every point, before any of them starts.

    Points that come to the same config and seed, such as two values of a parameter of a loss that neither chooses, are
    one trial, whose overrides are those that have an effect.

    Args:
        path: the gin file, None for the defaults.
        sets: overrides that all trials have.
        points: what each has beside them.
        max_trials: refuse more than so many.

    Raises:
        ConfigError: with one line for each thing that is wrong, and the first trial that has it.
    """
    from dovetail_lab.sweep.columns import check_known_columns  # it imports jax, which workers do not wait for

    points = list(points)
    if len(points) > max_trials:
        raise ConfigError(f"the space has {len(points):,} trials; raise sweep.max_trials = {max_trials} if you mean it")
    problems: dict[str, str] = {}
    trials: dict[str, Trial] = {}
    configs: dict[str, Config] = {}
    by_point: dict[Point, Trial] = {}
    tasks: dict[str, Task] = {}
    names = short_names(override.partition("=")[0] for point in points for override in point.overrides)
    for point in points:
        own = (*point.overrides, *([] if point.seed is None else [f"run.seed={point.seed}"]))
        try:
            config = _read(path, (*sets, *own))
            check_known_columns(config, tasks)
        except DovetailError as error:
            for line in str(error).splitlines():
                problems.setdefault(line, " ".join(own))
            continue
        idle = {unused.place for unused in config.unused}
        used = tuple(each for each in point.overrides if f"--set {each}" not in idle)
        trial = Trial(overrides=used, seed=config.run.seed, id=run_id(config), group=group_of(config), names=names)
        by_point[point] = trials.setdefault(trial.id, trial)
        configs.setdefault(trial.id, config)
    _refuse(problems)
    base = _base(path, sets)
    return Planned(base=base, trials=tuple(trials.values()), configs=configs, by_point=by_point)


def _read(path: str | os.PathLike[str] | None, overrides: Sequence[str]) -> Config:
    """Read a config and plan its step; the folder is the sweep's affair."""
    return load(path, (*overrides, "run.folder=None"))


def _base(path: str | os.PathLike[str] | None, sets: Sequence[str]) -> Config | None:
    try:
        return load(path, sets)
    except DovetailError:
        return None


def _refuse(problems: Mapping[str, str]) -> None:
    if problems:
        lines = [f"{problem}\n    in the trial {trial}" for problem, trial in problems.items()]
        more = len(lines) - SHOWN_PROBLEMS
        shown = [*lines[:SHOWN_PROBLEMS], f"and {more} more"] if more > 0 else lines
        raise ConfigError("\n".join(shown))


def group_of(config: Config) -> str:
    """Return what trials with equal compile-time parts have in common.

    Numbers that the compiled step receives are left out, but for whether they are zero, which may decide what is
    computed at all. It is a guess for scheduling: what is shared is decided by the compiled functions themselves.
    """
    return hashlib.sha256("\n".join(_compile_time(config)).encode()).hexdigest()[:8]


def _compile_time(config: Config) -> Iterator[str]:
    where = config.schema.where
    for section, values in config.sections.items():
        for field in attrs.fields(type(values)):
            value = getattr(values, field.name)
            if section not in where:
                yield f"{section}.{field.name} = {value != 0 if isinstance(value, float) else literal(value)}"
    for role, choice in sorted(config.choices.items()):
        if role.partition(".")[0] not in where:
            zero = {name: value != 0 for name, value in floats(choice).items()}
            fixed = {
                name: value for name, value in choice.params.items() if name not in zero
            }  # paths as they are written
            yield f"{role} {choice.component.qualified_name} {literal(fixed)} {literal(zero)}"
