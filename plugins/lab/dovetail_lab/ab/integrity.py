"""Checks that a verdict follows the registration: compares the record with its journal, copy, runs and sources."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from dovetail.config.located import begun_in
from dovetail.errors import RunError
from dovetail_lab.ab import sources
from dovetail_lab.ab.design import changes
from dovetail_lab.ab.journal import FILE, Journal, digest
from dovetail_lab.ab.registration import VERSION, Registration
from dovetail_lab.sweep import Store
from dovetail_lab.sweep.state import SETTLED
from dovetail_lab.sweep.store import RECORD

CONFIRMING: Final = ("metric", "goal", "window", "min_effect", "seeds", "stop_rule", "alpha", "lost")
"""The settings that an amendment must not change after a look, because the error rate would no longer hold."""


def keep(registration: Registration, store: Store) -> None:
    """Write to the journal what has happened to the runs and to the sources since it was last written."""
    journal = Journal(store.path)
    recorded = {(entry["run"], entry["started"]) for _, entry in journal.of("finished")}
    for trial in store.trials:
        state = store.state(trial)
        if state.status in SETTLED and (trial.id, state.started) not in recorded:
            about = {"run": trial.id, "status": state.status, "started": state.started}
            journal.append("finished", about | {"result": digest(store.folder(trial))})
    known = dict(registration.sources)
    for _, entry in journal.of("sources"):
        known = entry["hashes"]
    with begun_in(store.path):
        now = sources.hashes(registration.sources)
    if now != known:
        journal.append("sources", {"hashes": now})


def keep_look(store: Store, look: int, verdicts: Mapping[str, str]) -> None:
    """Write to the journal that the results were looked at, once for each thing that was seen."""
    journal, about = Journal(store.path), {"look": look, "verdicts": dict(verdicts)}
    looks = [entry for _, entry in journal.of("looked")]
    if not looks or {key: looks[-1][key] for key in about} != about:
        journal.append("looked", about)


def tampered(registration: Registration, store: Store) -> list[str]:
    """Return how the record differs from what was registered, in a sentence each."""
    journal, found = Journal(store.path), []
    try:
        entries = [entry for entry in journal.entries() if entry.get("event") in ("registered", "amended")]
        broken = journal.broken_at()
    except RunError as error:
        return [str(error)]
    if not entries:
        return [f"there is no {FILE} of what was registered"]
    if broken is not None:
        found.append(f"line {broken} of {FILE} was changed after it was written")
    records = [(FILE, entries[-1]["registration"], registration.to_json())]
    if (store.path / RECORD).exists():  # not before the first run
        design = {"design": store.record.get("space", {})}
        records.append((RECORD, design, {"design": registration.design.to_json()}))
    for where, written, here in records:
        differ = changes(_flat(written), _flat(here))
        if differ:
            found.append(f"ab.json is not what was registered, by {where}: {'; '.join(differ)}")
    return found


def doubts(registration: Registration, store: Store) -> tuple[str, ...]:
    """Return why a verdict does not confirm what was registered, in a sentence each; none: it does."""
    found = tampered(registration, store)
    try:
        found += [*_late(registration, store), *_altered(store), *_again(registration, store)]
        found += [*_sources(registration, store), *_amended(registration)]
    except (RunError, KeyError, TypeError) as error:
        found.append(f"{FILE} cannot be read: {error}")
    if registration.repeats:
        found.append(f"these seeds were compared before, in {', '.join(registration.repeats)}")
    return tuple(found)


def _flat(registration: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what later commands may change, and name each entry of the design by itself."""
    left = {key: value for key, value in registration.items() if key not in ("design", "amendments")}
    design = registration.get("design")
    return left | (design if isinstance(design, dict) else {"design": design})


def _late(registration: Registration, store: Store) -> Iterator[str]:
    """Compare the time of the registration, in whole seconds, with the first start."""
    starts = [start for trial in store.trials if (start := store.state(trial).started)]
    starts += [entry["started"] for _, entry in Journal(store.path).of("finished") if entry["started"]]
    registered = time.mktime(time.strptime(registration.registered, "%Y-%m-%d %H:%M:%S"))
    if starts and min(starts) < registered:
        first = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(min(starts)))
        yield f"it was registered on {registration.registered}, after the first run had started, on {first}"


def _altered(store: Store) -> Iterator[str]:
    """Name runs whose record has changed since they finished."""
    last = {entry["run"]: entry for _, entry in Journal(store.path).of("finished")}
    for trial in store.trials:
        entry, state = last.get(trial.id), store.state(trial)
        if entry and state.status in SETTLED and state.started == entry["started"]:
            if digest(store.folder(trial)) != entry["result"]:
                yield f"the record of run {trial.id} was changed after the run had finished"
            elif state.status != entry["status"]:
                yield f"run {trial.id} had finished as {entry['status']} and is now said to be {state.status}"


def _again(registration: Registration, store: Store) -> Iterator[str]:
    """Name runs that were made again after a look, and came to something else."""
    journal = Journal(store.path)
    first_look = next((number for number, _ in journal.of("looked")), None)
    which = {id: f"{arm}, seed {seed}" for arm, ids in registration.trials.items() for seed, id in ids.items()}
    before: dict[str, dict[str, Any]] = {}
    for number, entry in journal.of("finished"):
        earlier = before.get(entry["run"])
        before[entry["run"]] = entry
        if earlier and first_look is not None and number > first_look:
            came_to = [(each["status"], each["result"]) for each in (earlier, entry)]
            if came_to[0] != came_to[1]:
                ends = f"{earlier['status']} before, {entry['status']} now"
                yield f"{which.get(entry['run'], entry['run'])} was run again after a look at the results: {ends}"


def _sources(registration: Registration, store: Store) -> Iterator[str]:
    for _, entry in Journal(store.path).of("sources"):
        if differ := sources.changed(registration.sources, entry["hashes"]):
            yield f"the sources of {', '.join(differ)} changed between the runs, on {entry['time']}"


def _amended(registration: Registration) -> Iterator[str]:
    for each in registration.amendments:
        decisive = [change for change in each.changes if _decides(change.partition(":")[0])]
        if each.looks and decisive:
            yield f"the design was amended after a look at the results: {'; '.join(decisive)}"


def _decides(what: str) -> bool:
    """Tell whether a setting must not change after a look; of other versions, later pairs would run other code."""
    return what in CONFIRMING or what.startswith(VERSION)
