"""Runs that go on to another `train.steps` than they began with, the one setting of what is computed that may change.

`run.json` then lists under `extended`, for each change, the id that the run had, the numbers of steps `from` and `to`,
and `after` how many of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import attrs

from dovetail.config import Config, run_id
from dovetail.errors import RunError
from dovetail.run.files import read_record

CHANGES = "extended"
STEPS = "train.steps"


def changes(identity: Path) -> list[dict[str, Any]]:
    """Return the changes that a `run.json` lists, in order.

    Raises:
        RunError: if it cannot be read, or lists something else.
    """
    found = read_record(identity).get(CHANGES, [])
    try:
        if all(type(each[name]) is int for each in found for name in ("from", "to", "after")):
            return list(found)
    except (TypeError, KeyError, IndexError):
        pass
    raise RunError(f"'{identity}' has other {CHANGES!r} than a run writes; restore it, or choose another folder")


def change(path: Path, config: Config, was: str, before: str, numbers: Iterable[int]) -> dict[str, Any] | None:
    """Return how the run in a folder becomes that of `config`; None if more than `train.steps` would change.

    Args:
        path: the folder.
        config: the config with which the run is to go on.
        was: the run's id.
        before: the folder's `train.steps`, as its config says.
        numbers: the numbers of its checkpoints.

    Raises:
        RunError: for fewer steps than it has done, or has sampled the batches of.
    """
    steps, train = config.train.steps, config.train
    if not before.isdecimal():
        return None
    old = attrs.evolve(config, sections={**config.sections, "train": attrs.evolve(train, steps=int(before))})
    if run_id(old) != was:
        return None
    done = max(0, max(numbers, default=0) - config.sft.steps)
    if steps < (least := min(int(before), done + train.staleness)):
        ahead = f" and may have sampled {least - done} more" if least > done else ""
        raise RunError(
            f"{STEPS} = {steps}: the run in '{path}' has done {done} of {before} steps{ahead}; set {least} or more, or"
            " choose another --folder"
        )
    return {"run_id": was, "from": int(before), "to": steps, "after": done}


def ends(found: Iterable[dict[str, Any]], staleness: int) -> tuple[int, ...]:
    """Return the numbers of steps at which the run had an end, of its changes: no batch was sampled ahead of these.

    >>> ends([{"from": 100, "to": 200, "after": 60}, {"from": 200, "to": 300, "after": 199}], staleness=2)
    (200,)
    """
    return tuple(each["from"] for each in found if each["after"] + max(staleness, 1) > each["from"])
