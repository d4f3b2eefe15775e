"""The checkpoint of a run that a user names: the newest, the best, or that of a step."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from dovetail.errors import RunError, listing
from dovetail.run.best import best_of, scores
from dovetail.run.files import records

if TYPE_CHECKING:
    from dovetail.config import Config
    from dovetail.run.checkpoint import Checkpoints

BEST: Final = "best"
NEWEST: Final = "newest"


def find(word: str, config: Config, folder: Path, checkpoints: Checkpoints) -> int:
    """Return the number of the checkpoint that a user names.

    Args:
        word: `newest`, `best`, or a step of reinforcement learning.
        config: the run's config.
        folder: the run's folder.
        checkpoints: the run's checkpoints.

    Raises:
        RunError: if there is no such checkpoint; the message names those that there are.
    """
    numbers = checkpoints.numbers
    if not numbers:
        raise RunError(f"run folder '{folder}' holds no checkpoint yet")
    if word == NEWEST:
        return numbers[-1]
    steps = [str(number - config.sft.steps) for number in numbers if number >= config.sft.steps]
    if word == BEST:
        if config.run.keep_best is None:
            raise RunError(
                f"run '{folder}' has no best checkpoint, because it was trained without run.keep_best = 'eval/METRIC';"
                f" name a step: {listing(steps)}"
            )
        found = best_of(numbers, scores(config, records(folder / "metrics.jsonl")))
        if found is None:
            raise RunError(f"run '{folder}' has no evaluation of a checkpoint that is still there yet")
        return found
    if word not in steps:
        raise RunError(f"run '{folder}' has no checkpoint '{word}'. There: {', '.join([NEWEST, BEST, *steps])}")
    return config.sft.steps + int(word)
