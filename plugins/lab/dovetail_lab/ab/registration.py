"""`ab.json`: what was registered before the first run, every later change of it, and the result."""

from __future__ import annotations

import json
import math
import platform
import time
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import attrs

from dovetail.config import Config, versions
from dovetail.errors import ConfigError, DovetailError, RunError, listing, nearest
from dovetail.run.files import read_json, write_whole
from dovetail_kit.difference import difference
from dovetail_lab.ab import sources
from dovetail_lab.ab.design import Design, changes
from dovetail_lab.recorded import fitted, value_of
from dovetail_lab.sweep import Planned

FORMAT: Final = 2
FILE: Final = "ab.json"
LIBRARIES: Final = ("jax", "jaxlib", "flax", "optax", "numpy", "scipy")
SHOWN: Final = 6
MOMENT: Final = "%Y-%m-%d %H:%M:%S"
VERSION: Final = "version of "
"""What stands before the name of a package where its version is amended."""
TYPES: Final[Mapping[str, Any]] = {
    "config": str,
    "set": tuple[str, ...],
    "steps": dict[str, int],
    "design": dict[str, Any],
    "differences": dict[str, tuple[str, ...]],
    "versions": dict[str, str],
    "sources": dict[str, str],
    "commits": dict[str, str],
    "repeats": tuple[str, ...],
    "trials": dict[str, dict[str, str]],
    "registered": str,
    "amendments": list[dict[str, Any]],
}
"""What is read of a record."""


@attrs.frozen(kw_only=True)
class Amendment:
    """A change of the design after it was registered: when, why, what, after how many finished pairs and looks."""

    time: str
    why: str
    changes: tuple[str, ...]
    pairs: int
    looks: int


@attrs.frozen(kw_only=True)
class Registration:
    """A registered A/B test.

    Attributes:
        design: what is compared, as amended.
        config: the gin file.
        sets: overrides that all arms have.
        steps: by arm, the RL steps of a run.
        differences: by arm, how its resolved config differs from the control's.
        versions: of the plugins and of the libraries that compute.
        sources: by import package, single module or file that is in use, a hash of its files.
        commits: by the same names, the commit that is checked out where it lies, if one is.
        repeats: other tests that have made the same comparison, allowed by `--repeat`.
        trials: by arm and seed, the id of the run.
        registered: when.
        amendments: what was changed since.
    """

    design: Design
    config: str
    sets: tuple[str, ...]
    steps: Mapping[str, int]
    differences: Mapping[str, tuple[str, ...]]
    versions: Mapping[str, str]
    sources: Mapping[str, str]
    commits: Mapping[str, str]
    trials: Mapping[str, Mapping[int, str]]
    registered: str
    amendments: tuple[Amendment, ...] = ()
    repeats: tuple[str, ...] = ()

    @classmethod
    def of(cls, design: Design, config: str, sets: Iterable[str], planned: Planned) -> Registration:
        """Register planned runs."""
        runs = {(arm.name, point.seed): planned.by_point[point] for arm, point in design.points()}
        first = design.seeds[0]
        configs = {arm.name: planned.configs[runs[arm.name, first].id] for arm in design.arms}
        control, in_use = configs[design.control.name], sources.in_use(configs.values())
        return cls(
            design=design,
            config=config,
            sets=tuple(sets),
            steps={name: config.train.steps for name, config in configs.items()},
            differences={arm.name: tuple(difference(control, configs[arm.name])) for arm in design.treatments},
            versions=_versions(configs.values()),
            sources=sources.hashes(in_use),
            commits=sources.commits(in_use),
            trials={arm.name: {seed: runs[arm.name, seed].id for seed in design.seeds} for arm in design.arms},
            registered=_now(),
        )

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "format": FORMAT,
            "registered": self.registered,
            "config": self.config,
            "set": list(self.sets),
            "steps": dict(self.steps),
            "design": self.design.to_json(),
            "test": "exact sign-flip test of paired differences, two-sided; Holm over arms",
            "differences": {arm: list(lines) for arm, lines in self.differences.items()},
            "versions": dict(self.versions),
            "sources": dict(self.sources),
            "commits": dict(self.commits),
            "repeats": list(self.repeats),
            "trials": {arm: {str(seed): id for seed, id in ids.items()} for arm, ids in self.trials.items()},
            "amendments": [attrs.asdict(amendment) for amendment in self.amendments],
        }

    @classmethod
    def load(cls, folder: Path) -> Registration:
        """Read what is registered in a folder.

        Raises:
            RunError: if it is not an A/B test's folder, naming those beside it, or its record cannot be read.
        """
        if not (folder / FILE).is_file():
            beside = [each.parent.name for each in folder.parent.glob(f"*/{FILE}")] if folder.parent.is_dir() else []
            raise RunError(
                f"'{folder}' is not the folder of an A/B test (no {FILE}).{nearest(folder.name, beside)}"
                f" There: {listing(beside)}"
            )
        try:
            return cls._from_json(read_json(folder / FILE))
        except KeyError as error:
            raise RunError(f"'{folder / FILE}' is not a readable record of an A/B test: it has no {error}") from error
        except (OSError, ValueError, DovetailError) as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            raise RunError(f"'{folder / FILE}' is not a readable record of an A/B test: {reason}") from error

    @classmethod
    def _from_json(cls, record: Any) -> Registration:
        if not isinstance(record, dict) or record["format"] != FORMAT:
            raise ValueError(f"this version reads format {FORMAT}")
        checked = {name: value_of(hint, record[name], name) for name, hint in TYPES.items()}
        ids = {arm: {int(seed): id for seed, id in of.items()} for arm, of in checked.pop("trials").items()}
        amendments = tuple(fitted(Amendment, each) for each in checked.pop("amendments"))
        design, sets = Design.from_json(checked.pop("design")), checked.pop("set")
        time.strptime(checked["registered"], MOMENT)
        names = [arm.name for arm in design.arms]
        for what, of, wanted in (("steps", checked["steps"], names), ("trials", ids, names)):
            if sorted(of) != sorted(wanted):
                raise ValueError(f"{what} are of the arms {listing(of)}, and the design has {listing(wanted)}")
        for arm, runs in ids.items():
            if set(runs) != set(design.seeds):
                raise ValueError(f"the runs of arm {arm} are not those of the design's seeds")
        return cls(design=design, sets=sets, trials=ids, amendments=amendments, **checked)

    def save(self, folder: Path, result: Mapping[str, Any] | None = None) -> None:
        """Write `ab.json`."""
        text = json.dumps(_plain({**self.to_json(), "result": result}), indent=2, ensure_ascii=False, allow_nan=False)
        try:
            write_whole(folder / FILE, text + "\n")
        except OSError as error:
            raise RunError(f"'{folder / FILE}' cannot be written: {error.strerror or error}") from error

    def continues(self, there: Registration, *, amend: str | None, pairs: int, looks: int) -> Registration:
        """Return this registration as the continuation of the one that is there.

        Args:
            there: what was registered.
            amend: why the design is changed, if it is.
            pairs: how many pairs are finished.
            looks: how often the results were looked at.

        Raises:
            ConfigError: if the two differ and nobody says why, or in what cannot be amended.
        """
        found = changes(there._fixed(), self._fixed())
        if found:
            raise ConfigError(
                f"another test is registered there: {'; '.join(found[:SHOWN])}. Arms and config cannot be amended, as"
                " the runs are those of the registered ones; choose another --folder"
            )
        found = changes(there._amendable(), self._amendable())
        gone = set(there.design.seeds) - set(self.design.seeds)
        if gone:
            raise ConfigError(f"seeds {listing(map(str, gone))} are registered; an amendment may add seeds, drop none")
        if found and not amend:
            raise ConfigError(
                f"the design was registered on {there.registered} and differs: {'; '.join(found[:SHOWN])}. Repeat the"
                " registered command to resume it, or say --amend 'WHY', which is logged and shown in the report"
            )
        if not found:
            return there
        amendment = Amendment(time=_now(), why=amend or "", changes=tuple(found), pairs=pairs, looks=looks)
        first = {name: getattr(there, name) for name in ("registered", "sources", "commits", "repeats")}
        return attrs.evolve(self, **first, amendments=(*there.amendments, amendment))

    def _fixed(self) -> dict[str, Any]:
        arms = {f"arm {arm.name}": list(arm.overrides) for arm in self.design.arms}
        resolved = {f"arm {name} differs by": list(lines) for name, lines in self.differences.items()}
        about = {"config": self.config, "set": list(self.sets), "control": self.design.control.name}
        return about | arms | resolved

    def _amendable(self) -> dict[str, Any]:
        design = {key: value for key, value in self.design.to_json().items() if key not in ("arms", "control")}
        return design | {f"{VERSION}{name}": version for name, version in self.versions.items()}


def _versions(configs: Iterable[Config]) -> dict[str, str]:
    plugins = {name: version for config in configs for name, version in versions(config).items()}
    return plugins | {"python": platform.python_version()} | {name: metadata.version(name) for name in LIBRARIES}


def _now() -> str:
    return time.strftime(MOMENT)


def _plain(value: Any) -> Any:
    """Return JSON without NaN and infinity, which it cannot hold: null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
