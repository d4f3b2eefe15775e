"""The command `dovetail ab`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import attrs

from dovetail.config import Choice, load_experiment
from dovetail.config.located import begun_in
from dovetail.errors import ConfigError, RunError, printable
from dovetail.shipped import find
from dovetail_lab.ab import experiment
from dovetail_lab.ab.analysis import Analysis, analyse
from dovetail_lab.ab.design import Arm, Design, Window, parse_stop_rule
from dovetail_lab.ab.integrity import tampered
from dovetail_lab.ab.journal import FILE as JOURNAL
from dovetail_lab.ab.journal import Journal
from dovetail_lab.ab.outcomes import Runs
from dovetail_lab.ab.registration import FILE, Registration
from dovetail_lab.ab.words import counted, plan
from dovetail_lab.metric import check_metric
from dovetail_lab.settings import AB
from dovetail_lab.sweep import Planned, Store, Terms, parse_seeds, plan_trials
from dovetail_lab.sweep.commands import notes_of_all, parse_time
from dovetail_lab.sweep.store import RECORD

DECIDED, UNDECIDED = 0, 3
"""Exit codes; 1 is an error, as for every command."""

REGISTERED = ("control", "seeds", "metric", "goal", "window", "min_effect", "alpha", "lost", "sequential", "deviation")
"""Options that are settings of the section `ab`."""

HOW_IT_RUNS = (
    ("jobs", "sweep.jobs"),
    ("retry", "sweep.retry"),
    ("timeout", "sweep.timeout"),
    ("executor", "sweep.executor"),
    ("address", "executor.ray.address"),
)


def run(options: argparse.Namespace) -> int:
    """Register and run an A/B test, or resume it; report its results."""
    path = find(options.config)
    folder = options.folder or Path("ab") / path.stem
    with begun_in(folder):
        return _run(options, path, folder)


def _run(options: argparse.Namespace, path: Path, folder: Path) -> int:
    test = Test.of(path, options.overrides, read_settings(path, options), read_terms(path, options))
    registration = test.register(folder, amend=options.amend, repeat=options.repeat)
    print(printable("\n".join(introduction(registration, test.planned, test.deviation))))
    if options.dry_run:
        print(f"{len(test.planned.trials)} runs would be made in {folder}")
        return 0
    analysis = test.perform(registration, folder, extend=bool(options.amend))
    print(printable("\n".join(["", str(analysis), "", *(str(folder / name) for name in experiment.FILES)])))
    return DECIDED if analysis.decided and not analysis.runs.doubts else UNDECIDED


HowItRuns = tuple[Terms, Choice, int]
"""How runs are driven, where, and how many there may be."""


@attrs.frozen(kw_only=True)
class Test:
    """An A/B test that has been read and planned, but not registered yet.

    Attributes:
        path: the gin file.
        overrides: the overrides of all arms.
        design: the design of the comparison.
        planned: the runs.
        terms: the terms on which they run.
        executor: the executor that runs them.
        deviation: the standard deviation from a pilot, for the power; None if there is no pilot.
    """

    path: Path
    overrides: tuple[str, ...]
    design: Design
    planned: Planned
    terms: Terms
    executor: Choice
    deviation: float | None

    @classmethod
    def of(cls, path: Path, overrides: Sequence[str], settings: AB, how: HowItRuns) -> Test:
        """Read and plan every run.

        Raises:
            ConfigError: with one line for each thing that is wrong.
        """
        design, (terms, executor, limit) = make_design(settings), how
        chosen = f"sweep.executor='{executor.component.qualified_name}'"  # or its parameters would seem to be unused
        planned = plan_trials(path, [*overrides, chosen], [point for _, point in design.points()], max_trials=limit)
        experiment.check_arms(design, planned)
        for config in planned.configs.values():
            check_metric(design.metric, config)
        return cls(
            path=path,
            overrides=tuple(overrides),
            design=design,
            planned=planned,
            terms=terms,
            executor=executor,
            deviation=settings.deviation,
        )

    def register(self, folder: Path, *, amend: str | None, repeat: bool) -> Registration:
        """Return its registration, as the continuation of the one in the folder if there is one; nothing is written."""
        registration = Registration.of(self.design, self.path.name, self.overrides, self.planned)
        if (folder / FILE).exists():
            return resumed(registration, folder, amend)
        refuse_orphan(folder)
        return experiment.check_seeds(registration, folder, repeat=repeat)

    def perform(self, registration: Registration, folder: Path, *, extend: bool) -> Analysis:
        """Register it in its folder, run it to its last look, and write the report."""
        design = self.design
        about = {"config": str(self.path), "set": list(self.overrides), "space": design.to_json()}
        about |= {"metric": design.metric, "goal": design.goal}
        experiment.begin(registration, folder)
        store = Store.create(folder, self.planned, about, extend=extend)
        print(f"registered on {registration.registered}, seal {Journal(folder).seal}")
        analysis = experiment.run(registration, self.planned, store, self.executor.bind(), self.terms)
        experiment.report(analysis, folder)
        return analysis


def resumed(registration: Registration, folder: Path, amend: str | None) -> Registration:
    """Return the registration as the continuation of the one in the folder.

    Raises:
        ConfigError: if the two differ and `amend` does not give a reason.
        RunError: if the registration in the folder has been altered.
    """
    there, journal = Registration.load(folder), Journal(folder)
    # without them, a kill came between the registration and the folders of its runs
    has_runs = (folder / RECORD).exists() or any(journal.of("finished"))
    store = Store.open(folder) if has_runs else Store(folder)
    if found := tampered(there, store):
        raise RunError(f"'{folder}': {'; '.join(found)}. Put it back as it was, or choose another --folder")
    looks = sum(1 for _ in journal.of("looked"))
    pairs = Runs.read(there, store).pairs(there.design.seeds) if has_runs else 0
    return registration.continues(there, amend=amend, pairs=pairs, looks=looks)


def refuse_orphan(folder: Path) -> None:
    """Refuse a folder that has runs but no registration, as if the runs were still to come.

    Raises:
        RunError: saying what is there.
    """
    there = [name for name in (JOURNAL, RECORD) if (folder / name).exists()]
    if there:
        raise RunError(
            f"'{folder}' has {' and '.join(there)} and no {FILE}: it is a sweep's folder, or a test whose registration"
            " is gone. Put it back, or choose another --folder"
        )


def refuse_before_the_end(folder: Path, store: Store) -> None:
    """Refuse to show the results of a test before its next planned look.

    Raises:
        RunError: saying when they are looked at.
    """
    if not (folder / FILE).exists():
        return
    registration = Registration.load(folder)
    if not analyse(Runs.read(registration, store)).over:
        sizes = ", ".join(map(str, registration.design.look_sizes))
        raise RunError(
            f"'{folder}' is an A/B test that is looked at after {sizes} pairs: what its arms have come to is not shown"
            " before it has ended. `dovetail sweep status` shows which runs have, `dovetail report` the looks so far"
        )


def read_settings(path: Path, options: argparse.Namespace) -> AB:
    """Read `ab.*` from the config, with what the command line says in front of it."""
    given = ((key, getattr(options, key)) for key in REGISTERED)
    sets = [f"ab.{key}={value!r}" for key, value in given if value is not None]
    settings, _ = load_experiment("ab", path, [*options.overrides, *sets])
    arms: dict[str, tuple[str, ...]] = {}
    for arm in map(Arm.parse, options.arm):
        if arm.name in arms:
            raise ConfigError(f"arm '{arm.name}' is there twice; names must differ")
        arms[arm.name] = arm.overrides
    return attrs.evolve(settings, arms=settings.arms | arms)


def make_design(settings: AB) -> Design:
    """Return the design that the settings describe."""
    design = Design(
        arms=tuple(Arm.of(name, overrides) for name, overrides in settings.arms.items()),
        metric=settings.metric,
        goal=settings.goal,
        window=Window(settings.window),
        min_effect=settings.min_effect,
        seeds=parse_seeds(settings.seeds),
        looks=parse_stop_rule(settings.sequential),
        alpha=settings.alpha,
        lost=settings.lost,
    )
    return design.with_control(settings.control) if settings.control else design


def read_terms(path: Path, options: argparse.Namespace) -> HowItRuns:
    """Return how the runs are driven, as `sweep.*` of the config and the command line say."""
    given = ((key, getattr(options, option)) for option, key in HOW_IT_RUNS)
    sets = [f"{key}={value!r}" for key, value in given if value is not None]
    return how_it_runs(path, [*options.overrides, *sets])


def how_it_runs(path: Path, overrides: Sequence[str]) -> HowItRuns:
    """Return how the runs are driven: never as populations and in order, so that all arms are trained alike."""
    settings, choices = load_experiment("sweep", path, overrides)
    terms = Terms(jobs=settings.jobs, retry=settings.retry, timeout=parse_time(settings.timeout), in_order=True)
    return terms, choices["sweep.executor"], settings.max_trials


def introduction(registration: Registration, planned: Planned, deviation: float | None) -> list[str]:
    """Return what is compared and what the test can find, for the terminal."""
    design = registration.design
    lines = [f"control {design.control.name}: {design.control.in_full}"]
    for arm in design.treatments:
        lines.append(f"arm {arm.name}: {'; '.join(_in_both(registration.differences[arm.name]))}")
    better = "higher" if design.goal == "max" else "lower"
    looks = (
        f"looks after {', '.join(map(str, design.look_sizes))} pairs" if design.looks > 1 else "one look, at the end"
    )
    lines.append(
        f"{design.metric} ({better} is better), mean of {design.window.text}; {counted(len(design.seeds), 'seed')};"
        f" {looks}"
    )
    lines += plan(design, deviation)
    return [*lines, *notes_of_all(planned)]


def _in_both(differences: Sequence[str]) -> list[str]:
    """Leave out the parameters of components that only one of two arms chooses."""
    return [line for line in differences if not line.endswith("-> (none)") and " = (none) -> " not in line]


def report(folder: Path) -> list[Path]:
    """Write the report of an A/B test again, from its folder alone, also while it runs; return the files."""
    return experiment.report(experiment.stored(folder), folder)
