"""Whether a command belongs to the sweep that is in a folder, or to another one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dovetail.config import load
from dovetail.errors import DovetailError, RunError
from dovetail_kit.difference import difference
from dovetail_lab.sweep.trial import Planned, Trial

if TYPE_CHECKING:
    from dovetail_lab.sweep.store import Store

SHOWN_DIFFERENCES: Final = 8


def refuse_other_trials(
    store: Store, planned: Planned, about: Mapping[str, Any], *, base: Path, extend: bool = False
) -> None:
    """Refuse trials that are not those of a folder; with `extend` there may be more of them.

    Raises:
        RunError: with the difference.
    """
    there = {trial.id: trial for trial in store.trials}
    here = {trial.id: trial for trial in planned.trials}
    gone = [trial for key, trial in there.items() if key not in here]
    new = [trial for key, trial in here.items() if key not in there]
    if not gone and (extend or not new):
        return
    if not gone:
        raise RunError(
            f"sweep folder '{store.path}' has {len(there)} trials, this command has {len(new)} more:"
            f" {_some(new)}. Say --extend to add them"
        )
    what = [*_in_base(base, planned), *_changes(store.record.get("space", {}), about.get("space", {}))]
    why = "; ".join(what[:SHOWN_DIFFERENCES]) or "the versions of the plugins differ"
    raise RunError(
        f"sweep folder '{store.path}' belongs to another sweep: {why}. {len(gone)} of its {len(there)} trials are"
        f" not in this one, such as {_some(gone[:1])}. Choose another --folder, or repeat its command to resume it"
    )


def refuse_other_space(store: Store, about: Mapping[str, Any], *, extend: bool) -> None:
    """Refuse another space, and more draws where nobody has said so.

    Raises:
        RunError: with the difference.
    """
    there, here = store.record["space"], about["space"]
    if changed := _changes({**there, "draws": None}, {**here, "draws": None}):
        raise RunError(
            f"sweep folder '{store.path}' belongs to another sweep: {'; '.join(changed)}. Choose another --folder, or"
            " repeat its command to resume it"
        )
    if here["draws"] < there["draws"] or (here["draws"] > there["draws"] and not extend):
        how = "Say --extend to add them" if here["draws"] > there["draws"] else "Choose another --folder"
        raise RunError(f"sweep folder '{store.path}' has {there['draws']} draws, this command {here['draws']}. {how}")


def _in_base(base: Path, planned: Planned) -> list[str]:
    try:
        return difference(load(base), planned.base) if planned.base else []
    except DovetailError:
        return []


def _some(trials: Sequence[Trial], limit: int = 4) -> str:
    shown = ", ".join(f"{trial.id} ({trial.label})" for trial in trials[:limit])
    return shown + (f" and {len(trials) - limit} more" if len(trials) > limit else "")


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Say where two spaces differ."""
    keys = dict.fromkeys((*before, *after))
    return [f"{key}: {before.get(key)} -> {after.get(key)}" for key in keys if before.get(key) != after.get(key)]
