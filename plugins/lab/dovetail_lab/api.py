"""What `dovetail.sweep` and `dovetail.ab` are: the commands of these names, for notebooks and scripts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from dovetail.config import load_experiment
from dovetail.config.located import begun_in
from dovetail.shipped import find
from dovetail_lab.ab.analysis import Analysis
from dovetail_lab.ab.commands import Test, how_it_runs
from dovetail_lab.ab.design import Arm
from dovetail_lab.one_run import RecordedRun, Settings, open_run, texts
from dovetail_lab.sweep import Store
from dovetail_lab.sweep.commands import perform
from dovetail_lab.sweep.export import record
from dovetail_lab.sweep.request import Request


@attrs.frozen(kw_only=True)
class Swept:
    """A sweep's folder, read anew at every call.

    Attributes:
        store: its trials, states and curves.
        metric: what is compared.
        goal: `max` or `min`.
    """

    store: Store
    metric: str
    goal: str

    def table(self) -> dict[str, list[Any]]:
        """Return the trials by column: what each sets, by its type, how it stands, the last value of each metric."""
        records = [record(self.store, trial) for trial in self.store.trials]
        columns = dict.fromkeys(name for each in records for name in each)
        return {name: [each.get(name) for each in records] for name in columns}

    def runs(self) -> dict[str, RecordedRun]:
        """Return the runs that have begun, by trial id."""
        folders = {trial.id: self.store.folder(trial) for trial in self.store.trials}
        return {id: open_run(folder) for id, folder in folders.items() if (folder / "run.json").exists()}


def sweep(
    config: str | Path,
    *,
    folder: str | Path | None = None,
    settings: Settings = (),
    extend: bool = False,
    **options: Any,
) -> Swept:
    """Train many variants of a config, or go on where the sweep in the folder stands.

    Args:
        config: a gin file, or the name of a config that is shipped.
        folder: of the sweep; by default `sweeps/CONFIG`.
        settings: what all trials have.
        extend: allow trials in addition to those that are in the folder.
        **options: settings of the section `sweep`: `grid={"train.lr": (1e-4, 1e-3)}`, `seeds=3`, `jobs=2`, `metric`.

    Raises:
        ConfigError: before any trial starts, with one line for each thing that is wrong.
        RunError: if the folder has other trials, or is in use.
    """
    path, sets = find(str(config)), texts(settings)
    where = Path(folder or Path("sweeps") / path.stem)
    with begun_in(where):
        own, choices = load_experiment("sweep", path, [*sets, *_section("sweep", options)])
        request = Request(path=path, overrides=sets, settings=own, choices=choices, folder=where, extend=extend)
        store, _ = perform(request)
    return Swept(store=store, metric=own.metric, goal=own.goal)


def ab(
    config: str | Path,
    arms: Mapping[str, Settings],
    *,
    folder: str | Path | None = None,
    settings: Settings = (),
    amend: str | None = None,
    repeat: bool = False,
    **options: Any,
) -> Analysis:
    """Compare variants of a config over the same seeds, or go on where the test in the folder stands.

    Args:
        config: a gin file, or the name of a config that is shipped.
        arms: what each arm sets, the control first; nothing for the config itself.
        folder: of the test; by default `ab/CONFIG`.
        settings: what all arms have, and `sweep.jobs` and its like for how they run.
        amend: why what is registered there is changed.
        repeat: allow seeds on which these arms were compared elsewhere.
        **options: settings of the section `ab`: `seeds=8`, `metric`, `min_effect=0.05`, `window`, `sequential`.

    Returns:
        What `ab.html` shows: the verdicts in sentences (`print` it), `comparisons[arm].verdict`, and why it may confirm
        nothing in `runs.doubts`.

    Raises:
        ConfigError: before any run starts, with one line for each thing that is wrong.
        RunError: if another test is registered in the folder.
    """
    path, sets = find(str(config)), texts(settings)
    where = Path(folder or Path("ab") / path.stem)
    with begun_in(where):
        own, _ = load_experiment("ab", path, [*sets, *_section("ab", options)])
        made = {name: Arm.of(name, texts(overrides)).overrides for name, overrides in arms.items()}
        test = Test.of(path, sets, attrs.evolve(own, arms=made), how_it_runs(path, sets))
        registration = test.register(where, amend=amend, repeat=repeat)
        return test.perform(registration, where, extend=bool(amend))


def _section(name: str, options: Mapping[str, Any]) -> Sequence[str]:
    return texts({f"{name}.{key}": value for key, value in options.items()})
