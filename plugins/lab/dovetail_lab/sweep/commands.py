"""What the commands of `dovetail sweep` do."""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import attrs

from dovetail.config import Choice, in_few_lines, load_experiment
from dovetail.config.located import begun_in
from dovetail.errors import ConfigError, RunError, printable
from dovetail.shipped import find
from dovetail_lab.metric import check_metric_of_any
from dovetail_lab.settings import Sweep
from dovetail_lab.sweep.driver import drive
from dovetail_lab.sweep.export import export as export_text
from dovetail_lab.sweep.progress import open_watch
from dovetail_lab.sweep.request import Request
from dovetail_lab.sweep.searching import open_search, rehearse
from dovetail_lab.sweep.space import Space, parse_axes, parse_random
from dovetail_lab.sweep.state import FINAL, Status
from dovetail_lab.sweep.stopping import Stopping
from dovetail_lab.sweep.store import Store
from dovetail_lab.sweep.tables import alike_text, importance_text, settings_table, status_text, table_text
from dovetail_lab.sweep.terms import Terms, count
from dovetail_lab.sweep.trial import Planned

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def run(options: argparse.Namespace) -> int:
    """Start a sweep, or resume it; status 1 if a trial failed."""
    path = find(options.config)
    folder = options.folder or Path("sweeps") / path.stem
    with begun_in(folder):
        return _run(options, path, folder)


def _run(options: argparse.Namespace, path: Path, folder: Path) -> int:
    settings, choices = read_settings(path, options)
    request = Request(
        path=path,
        overrides=options.overrides,
        settings=settings,
        choices=choices,
        folder=folder,
        extend=options.extend,
    )
    parse_time(settings.timeout)  # refused also in a dry run
    if options.dry_run and request.sampler().learns:
        print(rehearse(request))
        return 0
    if options.dry_run:
        space = request.space()
        planned = _planned(request, space)
        print_plan(planned, request.folder, notes(space, planned))
        return 0
    store, statuses = perform(request)
    print(f"{count(statuses.elements())}   {request.folder}")
    print_best(store, settings.metric, settings.goal)
    for line in alike_text(store):
        print(printable(line))
    return 0 if statuses.keys() <= FINAL else 1


def perform(request: Request) -> tuple[Store, Counter[Status]]:
    """Start a sweep in a folder, or resume it; return how many trials there are of each status at its end."""
    settings = request.settings
    terms = Terms(
        jobs=settings.jobs,
        population=settings.vectorize,
        retry=settings.retry,
        timeout=parse_time(settings.timeout),
        fail_fast=settings.fail_fast,
    )
    if request.sampler().learns:
        search = open_search(request)
        store, steps, prepare = search.store, search.steps, search.prepare
    else:
        search = None
        store, planned = _planned_sweep(request)
        steps = {trial_id: config.train.steps for trial_id, config in planned.configs.items()}
        prepare = lambda trial: store.prepare(trial, planned.configs[trial.id])  # noqa: E731
    watch = open_watch(store, settings.metric, steps)
    try:
        statuses = drive(
            store,
            request.choices["sweep.executor"].bind(),  # pyright: ignore[reportArgumentType]
            terms,
            watch=watch,
            prepare=prepare,
            stopping=_stopping(request, steps),
            source=search,
        )
    finally:
        watch.close()
        if search:
            search.close()
    return store, statuses


def _planned_sweep(request: Request) -> tuple[Store, Planned]:
    """Make, or open again, the folder of a sweep whose trials are all known in advance."""
    space = request.space()
    planned = _planned(request, space)
    for text in notes(space, planned):
        print(printable(text))
    return Store.create(request.folder, planned, request.about(space), extend=request.extend), planned


def _planned(request: Request, space: Space) -> Planned:
    """Read the config at every point of a space.

    Raises:
        ConfigError: with one line for each thing that is wrong, or if no trial can have the metric.
    """
    planned = request.plan(space.points(), max_trials=request.settings.max_trials)
    check_metric_of_any(request.settings.metric, planned.configs.values())
    return planned


def _stopping(request: Request, steps: dict[str, int]) -> Stopping | None:
    rule, settings = request.choices.get("sweep.early_stopping"), request.settings
    return rule and Stopping(rule=rule, metric=settings.metric, goal=settings.goal, steps=steps)


def read_settings(path: Path, options: argparse.Namespace) -> tuple[Sweep, dict[str, Choice]]:
    """Read `sweep.*` from the config, with what the command line says in front of it."""
    sets = list(options.overrides)
    for option, key in (
        ("jobs", "sweep.jobs"),
        ("vectorize", "sweep.vectorize"),
        ("retry", "sweep.retry"),
        ("timeout", "sweep.timeout"),
        ("fail_fast", "sweep.fail_fast"),
        ("executor", "sweep.executor"),
        ("address", "executor.ray.address"),
        ("metric", "sweep.metric"),
        ("goal", "sweep.goal"),
        ("early_stopping", "sweep.early_stopping"),
        ("draw_seed", "sweep.draw_seed"),
        ("sampler", "sweep.sampler"),
        ("seeds", "sweep.seeds"),
    ):
        value = getattr(options, option)
        if value is not None:
            sets.append(f"{key}={value!r}")
    settings, choices = load_experiment("sweep", path, sets)
    return _with_axes(settings, options), choices


def _with_axes(settings: Sweep, options: argparse.Namespace) -> Sweep:
    grid, zipped = dict(settings.grid), dict(settings.zip)
    for axes, texts, option in ((grid, options.grid, "--grid"), (zipped, options.zip, "--zip")):
        given: set[str] = set()
        for text in texts:
            parsed = parse_axes(text, option)
            if twice := sorted(given & parsed.keys()):
                raise ConfigError(f"{option} {text}: {twice[0]} is there twice; give all of its values once")
            given |= parsed.keys()
            axes.update(parsed)
    if len(options.random) > 1:
        raise ConfigError("--random is there twice; give all distributions after one number of draws")
    drawn = settings
    if options.random:
        draws, forms = parse_random(options.random[0])
        forms = settings.random | {key: str(form) for key, form in forms.items()}
        drawn = attrs.evolve(settings, draws=draws, random=forms)
    return attrs.evolve(drawn, grid=grid, zip=zipped, exclude=(*settings.exclude, *options.exclude))


def parse_time(text: str | None) -> float:
    """Return seconds.

    >>> parse_time("90s"), parse_time("2h"), parse_time(None)
    (90.0, 7200.0, inf)

    Raises:
        ConfigError: if it is not a time.
    """
    if text is None:
        return math.inf
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text.strip())
    if not match or not float(match[1]):
        raise ConfigError(f"sweep.timeout '{text}' is not a time; write 90s, 30m, 2h or 1d")
    return float(match[1]) * UNITS[match[2] or "s"]


def notes(space: Space, planned: Planned) -> list[str]:
    """Say what is probably not meant."""
    found = [f"note: exclude {text} leaves nothing out" for text in space.idle_exclusions()]
    if planned.merged:
        point, trial = planned.merged[0]
        found.append(
            f"note: {len(planned.merged)} points come to the same run as another and are run once, such as"
            f" {' '.join(point.overrides)} as {trial.label}"
        )
    return [*found, *notes_of_all(planned)]


def notes_of_all(planned: Planned) -> list[str]:
    """Say which bindings have no effect in any of the trials."""
    first, *others = (config.unused for config in planned.configs.values())
    everywhere = [each for each in first if all(each in unused for unused in others)]
    return [f"note: {line}" for line in in_few_lines(everywhere)]


def print_plan(planned: Planned, folder: Path, notes: Sequence[str]) -> None:
    """Print the trials that would run, and what is probably not meant."""
    for text in notes:
        print(printable(text))
    groups = list(dict.fromkeys(trial.group for trial in planned.trials))
    width = max(len(trial.id) for trial in planned.trials)
    for trial in planned.trials:
        print(f"{trial.id:<{width}}  {groups.index(trial.group):>3}  {printable(trial.label)}")
    print(
        f"{len(planned.trials)} trials in {len(groups)} group{'s' * (len(groups) != 1)} (second column), each of which"
        f" compiles once; they would run in {folder}"
    )


def print_best(store: Store, metric: str, goal: str) -> None:
    """Print the best setting so far."""
    rows = settings_table(store, metric, goal)
    if rows and rows[0].mean is not None:
        print(
            printable(
                f"best {metric}: {rows[0].mean:.4g} ({rows[0].label}); `dovetail sweep table {store.path}` has them all"
            )
        )


def status(options: argparse.Namespace) -> int:
    """Print how each trial stands."""
    print(printable(status_text(Store.open(options.folder))))  # the folder may be a stranger's
    return 0


def table(options: argparse.Namespace) -> int:
    """Print what each setting has come to."""
    store = _open_results(options.folder)
    print(printable(table_text(store, *_compared(store, options))))
    return 0


def importance(options: argparse.Namespace) -> int:
    """Print which parameters matter."""
    store = _open_results(options.folder)
    print(printable(importance_text(store, *_compared(store, options))))
    return 0


def _open_results(folder: Path) -> Store:
    """Open a sweep whose results may be seen, which those of an A/B test may once it has come to its end.

    Raises:
        RunError: if they may not.
    """
    from dovetail_lab.ab.commands import refuse_before_the_end

    store = Store.open(folder)
    refuse_before_the_end(folder, store)
    return store


def _compared(store: Store, options: argparse.Namespace) -> tuple[str, str]:
    record = store.record
    return options.metric or record.get("metric", "eval/accuracy"), options.goal or record.get("goal", "max")


def kill(options: argparse.Namespace) -> int:
    """End trials, or the whole sweep."""
    store = Store.open(options.folder)
    if not options.trials:
        store.ask_all_to_stop()
        print(f"asked all of '{store.path}' to stop; the same sweep command goes on from there")
        return 0
    for trial in [store.find(word) for word in options.trials]:
        state = store.state(trial)
        if state.status in FINAL:
            raise RunError(f"trial {trial.id} is {state.status} already")
        if state.status == "running":
            store.ask_to_stop(trial, "killed", "by sweep kill")
            print(f"asked {trial.id} to stop ({printable(trial.label)})")
        else:
            store.settle(trial, "killed", "by sweep kill")
            print(f"{trial.id} will not run ({printable(trial.label)})")
    return 0


def export(options: argparse.Namespace) -> int:
    """Write the trials as csv, json or html."""
    store = _open_results(options.folder)
    text = export_text(store, options.format, *_compared(store, options))
    if options.output is None:
        print(printable(text) if sys.stdout.isatty() else text, end="")  # what others read stays as it is
        return 0
    try:
        options.output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RunError(f"'{options.output}' cannot be written: {error.strerror or error}") from error
    print(options.output)
    return 0
