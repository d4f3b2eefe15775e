"""The search of a sampler that learns: begun, resumed or rehearsed."""

from __future__ import annotations

from itertools import zip_longest

import attrs

from dovetail.config.types import literal
from dovetail.errors import ConfigError
from dovetail_lab.kinds import Study
from dovetail_lab.metric import check_metric_of_any
from dovetail_lab.sweep.request import Request, nothing_to_choose
from dovetail_lab.sweep.same import refuse_other_space
from dovetail_lab.sweep.search import Search, planned
from dovetail_lab.sweep.space import Point, Space
from dovetail_lab.sweep.store import RECORD, Store
from dovetail_lab.sweep.trial import Planned


@attrs.frozen
class _Begun:
    """A study of a space whose ends have been planned, so that each of its values is allowed."""

    space: Space
    ends: Planned
    study: Study
    seeds: tuple[int, ...]

    @classmethod
    def of(cls, request: Request) -> _Begun:
        space = request.space()
        _check(space, request.sampler_name, request.settings.max_trials)
        ends = request.plan(_ends(space))
        check_metric_of_any(request.settings.metric, ends.configs.values())
        config = next(iter(ends.configs.values()))
        study = request.open(space, total_steps=config.train.steps)
        return cls(space, ends, study, space.seeds or (config.run.seed,))


def open_search(request: Request) -> Search:
    """Open the search of a sampler that learns, in a new folder or in one that it has begun in.

    Raises:
        ConfigError: if the settings ask for what a sampler does not choose, or a value of the space is not allowed.
        RunError: if the folder belongs to another sweep.
    """
    begun = _Begun.of(request)
    search = Search(
        path=request.folder,
        study=begun.study,
        plan=request.plan,
        seeds=begun.seeds,
        about=request.about(begun.space),
        metric=request.settings.metric,
        sign=1.0 if request.settings.goal == "max" else -1.0,
        planned=Planned(base=begun.ends.base, trials=(), configs={}, by_point={}),
    )
    if (request.folder / RECORD).exists():
        refuse_other_space(Store.open(request.folder), search.about, extend=request.extend)
    else:
        Store.create(request.folder, search.planned, search.about)
    return search


def rehearse(request: Request) -> str:
    """Plan the ends of the space and the first proposal; return what would happen, in a line."""
    begun = _Begun.of(request)
    space, first = begun.space, begun.study.ask()
    if first is None:
        raise ConfigError(f"sampler '{request.sampler_name}' proposes nothing")
    planned(first, begun.seeds, request.plan)
    seeds = f" over {len(space.seeds)} seeds each" if len(space.seeds) > 1 else ""
    return (
        f"{space.draws} settings{seeds}, chosen by {space.sampler} as results come in; they would run in"
        f" {request.folder}"
    )


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
        raise ConfigError(nothing_to_choose(name))


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
