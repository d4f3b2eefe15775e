"""Mutation testing of docstring examples: what of a component could be otherwise without any of them showing it.

DeMillo, Lipton and Sayward 1978, "Hints on test data selection". One operator, number or function of the component is
changed at a time, and its examples are run. A change that they do not notice is a slip that they would not have caught.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Final

import attrs
from packaging.utils import canonicalize_name

from dovetail.errors import ConfigError, listing, nearest
from dovetail.registry import Component, Registry, current
from dovetail.registry.compatibility import ENGINE, owner_of
from dovetail_kit.mutants.tree import Mutant
from dovetail_kit.mutants.trial import Trials
from dovetail_kit.workers import Workers

FEW: Final = 20
"""Changes for which another process is not worth its start."""
SECONDS: Final = 10.0
"""A change may take so long, and so many times as long as the examples did as it is; then it is ended and noticed."""


@attrs.frozen(kw_only=True)
class Verdict:
    """How many changes were made in a file, those that no example noticed, and what is used but was not changed.

    `left` is the number of changes that were not tried, because somebody interrupted it.
    """

    file: Path
    made: int
    unnoticed: tuple[Mutant, ...]
    unchanged: tuple[str, ...] = ()
    left: int = 0


def chosen(registry: Registry, distribution: str | None = None, only: str | None = None) -> list[Component]:
    """Return the components of a distribution, by default of all but dovetail, or a single one: KIND.NAME.

    Raises:
        ConfigError: if there are none.
        UnknownNameError: for an unknown kind or name, with the nearest spelling.
    """
    owners = {component.origin.distribution for component in registry.components()}
    asked = {
        owner
        for owner in owners
        if distribution and canonicalize_name(owner) == canonicalize_name(owner_of(distribution))
    }
    if distribution and not asked:
        raise ConfigError(
            f"{distribution} registers nothing;{nearest(distribution, owners)} these do: {listing(owners)}"
        )
    if only:
        kind, _, name = only.partition(".")
        return [registry.get(kind, name, prefer=sorted(asked))]
    return [each for each in registry.components() if each.origin.distribution in (asked or owners - {ENGINE})]


def examine(
    component: Component,
    watch: Callable[[int, int], None] = lambda done, total: None,
    *,
    processes: int = 0,
) -> Verdict | None:
    """Change a component, and what it uses of its file, in one place at a time, and run the examples of all of these.

    Code that is imported from elsewhere stays as it is, and so do texts, messages and defaults. Returns None for a
    component without examples.

    Args:
        component: one that a plugin registers.
        watch: is told how many of all changes have been tried.
        processes: in how many processes changes are tried. Each of these is ended when a change hangs, whatever it
            does; 0 is this one, where nothing ends what neither turns nor calls.

    Raises:
        ConfigError: if it is not defined at the top level of a file, or its examples fail as it is.
    """
    begun = time.monotonic()
    trials = Trials.of(component)
    if trials is None:
        return None
    trials.check()
    limit = SECONDS * (1 + time.monotonic() - begun)
    total, unnoticed, done = len(trials.mutants), list[Mutant](), 0
    watch(0, total)
    try:
        for mutant, noticed in zip(trials.mutants, _tried(trials, component, processes, limit), strict=True):
            done += 1
            watch(done, total)
            unnoticed += [] if noticed else [mutant]
    except KeyboardInterrupt:
        if not done:
            raise
    return Verdict(
        file=trials.file, made=done, unnoticed=tuple(unnoticed), unchanged=trials.unchanged, left=total - done
    )


def _tried(trials: Trials, component: Component, processes: int, limit: float) -> Iterator[bool]:
    """Yield for each change whether an example notices it."""
    if not processes:
        trials.count()
        yield from map(trials.notices, range(len(trials.mutants)))
        return
    make = functools.partial(_noticing, component.kind, component.name, component.origin.distribution)
    count = min(processes, max(1, len(trials.mutants) // FEW))
    with closing(Workers(make, count)) as workers, ThreadPoolExecutor(count) as threads:
        try:
            for found in threads.map(lambda number: workers.call(number, time_limit=limit), range(len(trials.mutants))):
                yield found is not False  # one that was ended, or has ended its process, is noticed
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
            workers.close()


def _noticing(kind: str, name: str, distribution: str) -> Callable[[int], bool]:
    """Return what a process answers: whether a change is noticed."""
    trials = Trials.of(current().get(kind, name, prefer=[distribution]))
    assert trials is not None, "it had examples in the parent"
    trials.count()
    return trials.notices
