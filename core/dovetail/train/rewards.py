"""Call the chosen rewards on completions and combine what they return."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
from jaxtyping import Float

from dovetail.errors import PlanError, RewardError, listing, nearest
from dovetail.protocols import Example
from dovetail.train.parts import Part

ALWAYS = ("completions", "prompts")


@attrs.frozen(kw_only=True)
class Scores:
    """Scores of completions, with the parts they are made of.

    NaN in the table means that a reward abstained; NaN in the total, that all did: such a completion is not trained on.
    """

    total: Float[np.ndarray, "seq"]
    table: Float[np.ndarray, "seq reward"]
    names: tuple[str, ...]


@attrs.frozen(kw_only=True)
class Scorer:
    """The chosen rewards and their manager."""

    rewards: tuple[Part, ...]
    manager: Part

    def check(self) -> None:
        """Let the manager see the names it will get, before anything is trained.

        Raises:
            DovetailError: if the manager refuses them.
        """
        self.manager.build()(np.zeros((0, len(self.rewards))), tuple(p.component.name for p in self.rewards))

    def check_columns(self, columns: Sequence[str], task: str) -> None:
        """Refuse a reward that reads a column which the task does not have.

        Raises:
            PlanError: naming the reward, the column, the task's columns and the nearest of them.
        """
        for part in self.rewards:
            for name in part.component.reads:
                if name not in (*ALWAYS, *columns):
                    raise PlanError(
                        f"reward {part.component.name} reads the column '{name}', which task {task} does not have."
                        f"{nearest(name, columns)} Columns: {listing(columns)}; always there: {', '.join(ALWAYS)}"
                    )

    def __call__(self, examples: Sequence[Example], completions: Sequence[str]) -> Scores:
        """Score completions; `examples[i]` is the record that `completions[i]` answers.

        Raises:
            RewardError: if a reward raises, or returns a wrong number of scores or something that is no finite number;
                the message names the reward and the sample.
        """
        table = self.table(examples, completions)
        names = tuple(part.component.name for part in self.rewards)
        return Scores(total=self.manager.build()(table, names), table=table, names=names)

    def table(self, examples: Sequence[Example], completions: Sequence[str]) -> Float[np.ndarray, "seq reward"]:
        """Return each reward's scores; NaN where it abstained. Errors as in a call."""
        given = {"completions": list(completions), "prompts": [e["prompt"] for e in examples]}
        return np.stack([self._column(part, examples, given) for part in self.rewards], axis=1)

    def _column(self, part: Part, examples: Sequence[Example], given: dict[str, list[Any]]) -> Float[np.ndarray, "seq"]:
        name = part.component.name
        arguments = [
            given[read] if read in given else [example[read] for example in examples] for read in part.component.reads
        ]
        try:
            returned = list(part.build()(*arguments))
        except Exception as error:
            raise RewardError(
                f"reward {name} ({part.component.origin}) raised {type(error).__name__}: {error}; first completion:"
                f" {_shown(given['completions'][0])}"
            ) from error
        if len(returned) != len(examples):
            raise RewardError(f"reward {name} returned {len(returned)} scores for {len(examples)} completions")
        return np.array([_number(score, name, i, given) for i, score in enumerate(returned)], np.float64)


def _number(score: Any, name: str, index: int, given: dict[str, list[Any]]) -> float:
    if score is None:
        return math.nan
    try:
        number = float(score)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise RewardError(
            f"reward {name} gave {score!r} to sample {index}, prompt {_shown(given['prompts'][index])}, completion"
            f" {_shown(given['completions'][index])}; return a finite number, or None to abstain"
        )
    return number


def _shown(text: str, limit: int = 80) -> str:
    return repr(text if len(text) <= limit else text[:limit] + "...")
