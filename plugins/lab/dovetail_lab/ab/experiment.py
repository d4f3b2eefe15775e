"""Runs an A/B test: its runs are trials of a sweep, driven pair by pair, and analysed at the registered looks."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import attrs

from dovetail.config import in_few_lines
from dovetail.errors import ConfigError, RunError, listing
from dovetail.run.files import read_json
from dovetail_lab.ab import integrity, markdown, page
from dovetail_lab.ab.analysis import Analysis, analyse, to_json
from dovetail_lab.ab.design import Design
from dovetail_lab.ab.journal import Journal
from dovetail_lab.ab.outcomes import Runs
from dovetail_lab.ab.registration import FILE, Registration
from dovetail_lab.ab.watch import open_watch
from dovetail_lab.report.page import write
from dovetail_lab.sweep import Planned, Store, Terms, Trial, drive

REPORT, TEXT = "ab.html", "ab.md"
FILES = (REPORT, TEXT, FILE)
"""What a report consists of."""


def check_arms(design: Design, planned: Planned) -> None:
    """Refuse arms that are the same config.

    Raises:
        ConfigError: naming the two.
    """
    seen: dict[str, str] = {}
    for arm, point in design.points():
        trial = planned.by_point[point]
        other = seen.setdefault(trial.id, arm.name)
        if other != arm.name:
            why = "".join(f" {line}." for line in in_few_lines(planned.configs[trial.id].unused))
            raise ConfigError(
                f"arms {other} and {arm.name} are the same config (run {trial.id}): there is nothing to compare.{why}"
            )


def check_seeds(registration: Registration, folder: Path, *, repeat: bool) -> Registration:
    """Refuse a comparison of the same runs that another A/B test near this one has made, or record that it has.

    Near is beside the folder, or in another folder beside its parent.

    Raises:
        ConfigError: naming the test and the seeds.
    """
    repeated = []
    near = {*folder.parent.glob(f"*/{FILE}"), *folder.absolute().parent.parent.glob(f"*/*/{FILE}")}
    for where, record in sorted({record.resolve().parent: record for record in near}.items()):
        seeds = [] if where == folder.resolve() else _shared(registration, _ids(record))
        if seeds and not repeat:
            raise ConfigError(
                f"'{_shown(where)}' has compared these arms on seeds {listing(map(str, seeds))} already: the same seeds"
                " give the same runs, which are not new evidence. Take other --seeds, or say --repeat to run them again"
            )
        repeated += [_shown(where)] * bool(seeds)
    return attrs.evolve(registration, repeats=tuple(repeated))


def _shared(registration: Registration, there: set[str]) -> list[int]:
    """The seeds of which another test has made the runs of two arms."""
    ids = registration.trials.values()
    return [seed for seed in registration.design.seeds if sum(each[seed] in there for each in ids) > 1]


def _shown(folder: Path) -> str:
    here = Path.cwd()
    return str(folder.relative_to(here) if folder.is_relative_to(here) else folder)


def _ids(record: Path) -> set[str]:
    """The runs of another test, as far as its record can be read."""
    try:
        return {id for ids in read_json(record)["trials"].values() for id in ids.values()}
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return set()


def begin(registration: Registration, folder: Path) -> None:
    """Write the registration, or its amendment, to `ab.json` and to the journal, before any run starts.

    Raises:
        RunError: if that is impossible.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"'{folder}' cannot be made: {error.strerror or error}") from error
    journal, record = Journal(folder), registration.to_json()
    entries = [*journal.of("registered"), *journal.of("amended")]
    if not entries or max(entries)[1]["registration"] != record:
        journal.append("amended" if entries else "registered", {"registration": record})
    registration.save(folder)


def run(registration: Registration, planned: Planned, store: Store, executor: Any, terms: Terms) -> Analysis:
    """Drive the runs up to each look, until all arms are decided or the last look is done."""
    design = registration.design
    trials = [planned.by_point[point] for _, point in design.points()]
    arms, done = len(design.arms), 0
    for size in design.look_sizes:
        _drive(store, executor, terms, registration, planned, trials[done * arms : size * arms])
        done = size
        integrity.keep(registration, store)
        found = analyse(Runs.read(registration, store))
        if found.look:
            integrity.keep_look(store, found.look, {arm: each.verdict for arm, each in found.comparisons.items()})
        if found.over:
            break
    return analyse(Runs.read(registration, store))


def _drive(
    store: Store, executor: Any, terms: Terms, registration: Registration, planned: Planned, trials: Iterable[Trial]
) -> None:
    watch = open_watch(store, registration)
    try:
        drive(
            store,
            executor,
            terms,
            watch=watch,
            prepare=lambda trial: store.prepare(trial, planned.configs[trial.id]),
            trials=tuple(trials),
        )
    finally:
        watch.close()


def stored(folder: Path) -> Analysis:
    """Return what the test in a folder has found so far.

    Raises:
        RunError: if there is none, or it cannot be read.
    """
    return analyse(Runs.read(Registration.load(folder), Store.open(folder)))


def report(analysis: Analysis, folder: Path) -> list[Path]:
    """Write `ab.html`, `ab.md` and the result into `ab.json`; return the files."""
    write(folder / REPORT, page.render(analysis))
    write(folder / TEXT, markdown.render(analysis))
    analysis.registration.save(folder, to_json(analysis) if analysis.look else None)
    return [folder / name for name in FILES]
