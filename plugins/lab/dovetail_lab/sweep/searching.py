"""From the settings of a sweep to its space, and to the search of a sampler that learns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, cast

import attrs

from dovetail.config import Choice
from dovetail.config.types import literal
from dovetail.errors import ConfigError, RunError
from dovetail_lab.kinds import Sampler
from dovetail_lab.settings import Sweep
from dovetail_lab.sweep.distributions import Distribution
from dovetail_lab.sweep.search import Search, planned
from dovetail_lab.sweep.space import Exclusion, Point, Space, parse_seeds
from dovetail_lab.sweep.store import RECORD, Store
from dovetail_lab.sweep.trial import Planned, plan_trials


def about(path: Path, overrides: Sequence[str], space: Space, settings: Sweep) -> dict[str, Any]:
    """Return what is recorded of a sweep beside its trials."""
    return {
        "config": str(path),
        "set": list(overrides),
        "space": space.describe(),
        "metric": settings.metric,
        "goal": settings.goal,
    }


def make_space(settings: Sweep, sampler: Choice) -> Space:
    """Return the space that the settings describe; the draws of a sampler that does not learn are in it."""
    space = Space(
        grid=settings.grid,
        zip=settings.zip,
        random={key: Distribution.parse(text, key) for key, text in settings.random.items()},
        draws=settings.draws,
        draw_seed=settings.draw_seed,
        seeds=() if settings.seeds is None else parse_seeds(settings.seeds),
        exclude=tuple(map(Exclusion.parse, settings.exclude)),
    )
    if sampler.component.name == "random" or not space.random:
        return space
    space = attrs.evolve(space, sampler=described(sampler))
    if bound(sampler).learns:
        return space
    study = bound(sampler).open(space.random, draws=space.draws, seed=space.draw_seed, total_steps=0)
    asked = [study.ask() for _ in range(space.draws)]
    return attrs.evolve(space, drawn=tuple(each.values for each in asked if each))


def bound(sampler: Choice) -> Sampler:
    """Return the sampler that was chosen, with its parameters."""
    return cast("Sampler", sampler.bind())


def described(sampler: Choice) -> str:
    """Return a sampler with its parameters."""
    values = ", ".join(f"{name}={literal(value)}" for name, value in sorted(sampler.params.items()))
    return f"{sampler.component.name}({values})"


def open_search(
    path: Path,
    overrides: Sequence[str],
    settings: Sweep,
    choices: Mapping[str, Choice],
    folder: Path,
    *,
    extend: bool = False,
) -> Search:
    """Open the search of a sampler that learns, in a new folder or in one that it has begun in.

    Raises:
        ConfigError: if the settings ask for what a sampler does not choose, or a value of the space is not allowed.
        RunError: if the folder belongs to another sweep.
    """
    space = make_space(settings, choices["sweep.sampler"])
    _check(space, choices["sweep.sampler"].component.name, settings.max_trials)
    ends = plan_trials(path, overrides, _ends(space))
    config = next(iter(ends.configs.values()))
    record = about(path, overrides, space, settings)
    search = Search(
        path=folder,
        study=bound(choices["sweep.sampler"]).open(
            space.random, draws=space.draws, seed=space.draw_seed, total_steps=config.train.steps
        ),
        plan=lambda points: plan_trials(path, overrides, points),
        seeds=space.seeds or (config.run.seed,),
        about=record,
        metric=settings.metric,
        sign=1.0 if settings.goal == "max" else -1.0,
        planned=Planned(base=ends.base, trials=(), configs={}, by_point={}),
    )
    if (folder / RECORD).exists():
        _compare(Store.open(folder), record, extend=extend)
    else:
        Store.create(folder, search.planned, record)
    return search


def rehearse(path: Path, overrides: Sequence[str], settings: Sweep, choices: Mapping[str, Choice], folder: Path) -> str:
    """Plan the ends of the space and the first proposal; return what would happen, in a line."""
    space = make_space(settings, choices["sweep.sampler"])
    _check(space, choices["sweep.sampler"].component.name, settings.max_trials)
    ends = plan_trials(path, overrides, _ends(space))
    config = next(iter(ends.configs.values()))
    sampler = bound(choices["sweep.sampler"])
    first = sampler.open(space.random, draws=space.draws, seed=space.draw_seed, total_steps=config.train.steps).ask()
    if first is None:
        raise ConfigError(f"sampler '{choices['sweep.sampler'].component.name}' proposes nothing")
    planned(first, space.seeds or (config.run.seed,), lambda points: plan_trials(path, overrides, points))
    seeds = f" over {len(space.seeds)} seeds each" if len(space.seeds) > 1 else ""
    return f"{space.draws} settings{seeds}, chosen by {space.sampler} as results come in; they would run in {folder}"


def _check(space: Space, name: str, max_trials: int) -> None:
    if (trials := space.draws * max(len(space.seeds), 1)) > max_trials:
        raise ConfigError(f"the space has {trials:,} trials; raise sweep.max_trials = {max_trials} if you mean it")
    for what, there in (("grid", space.grid), ("zip", space.zip), ("exclude", space.exclude)):
        if there:
            raise ConfigError(
                f"sampler '{name}' chooses all that varies, so that {what} has no place beside it; write the values as"
                " KEY=choice(A,B) among those of --random"
            )
    if not space.random:
        raise ConfigError(
            f"sampler '{name}' has nothing to choose; write --random 20 KEY=uniform(0,1), or sweep.random"
        )


def _ends(space: Space) -> list[Point]:
    """Points that have between them both ends of every range and all options: what is not allowed is said at once."""
    columns = {
        key: form.arguments if form.form == "choice" else (form.at(0.0), form.at(1.0 - 1e-9))
        for key, form in space.random.items()
    }
    rows = zip_longest(*columns.values())
    filled = [
        {key: values[0] if value is None else value for (key, values), value in zip(columns.items(), row, strict=True)}
        for row in rows
    ]
    return [Point(tuple(f"{key}={literal(value)}" for key, value in row.items())) for row in filled]


def _compare(store: Store, record: Mapping[str, Any], *, extend: bool) -> None:
    """Refuse another space, and more draws where nobody has said so."""
    there, here = store.record["space"], record["space"]
    changed = [
        f"{key}: {there.get(key)} -> {here.get(key)}"
        for key in dict.fromkeys((*there, *here))
        if key != "draws" and there.get(key) != here.get(key)
    ]
    if changed:
        raise RunError(
            f"sweep folder '{store.path}' belongs to another sweep: {'; '.join(changed)}. Choose another --folder, or"
            " repeat its command to resume it"
        )
    if here["draws"] < there["draws"] or (here["draws"] > there["draws"] and not extend):
        how = "Say --extend to add them" if here["draws"] > there["draws"] else "Choose another --folder"
        raise RunError(f"sweep folder '{store.path}' has {there['draws']} draws, this command {here['draws']}. {how}")
