"""The best checkpoint of a run: the one whose evaluation has the greatest value of `run.keep_best`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dovetail.errors import ConfigError, RunError, listing, nearest

if TYPE_CHECKING:
    from dovetail.config import Config


def check_best(config: Config) -> None:
    """Refuse `run.keep_best` in a run that makes no checkpoint of the weights it evaluates.

    Raises:
        ConfigError: with where the setting is, and what would do.
    """
    name, every, saved = config.run.keep_best, config.eval.every, config.run.checkpoint_every
    if name is None:
        return
    place = f"{config.origins['run.keep_best']}: run.keep_best = '{name}'"
    if not name.startswith("eval/"):
        raise ConfigError(f"{place} is not a metric of evaluations, such as 'eval/accuracy'")
    if every is None or every % saved:
        remedy = "set eval.every" if every is None else f"set eval.every to a multiple of {saved}"
        raise ConfigError(
            f"{place} compares checkpoints by their evaluations, but eval.every = {every} and run.checkpoint_every ="
            f" {saved}; {remedy}"
        )


def scores(config: Config, evaluations: Iterable[Mapping[str, Any]]) -> dict[int, float]:
    """Return the value of `run.keep_best` by the number of the checkpoint; lines that are not evaluations are skipped.

    Raises:
        RunError: if evaluations do not have this metric.
    """
    name, found = config.run.keep_best, {}
    if name is None:
        return found
    for line in evaluations:
        names = [each for each in line if each.startswith("eval/")]
        if names and name not in names:
            raise RunError(
                f"run.keep_best = '{name}' is not a metric of the evaluations.{nearest(name, names)} There:"
                f" {listing(names)}"
            )
        if names and line[name] is not None and math.isfinite(line[name]):
            found[config.sft.steps + line["step"]] = line[name]
    return found


def best_of(numbers: Sequence[int], scores: Mapping[int, float]) -> int | None:
    """Return the number with the greatest score, the first of equals; None if none has a score.

    >>> best_of([1, 2, 3, 4], {2: 0.5, 3: 0.5, 4: 0.4})
    2
    """
    return max((number for number in numbers if number in scores), key=lambda number: scores[number], default=None)
