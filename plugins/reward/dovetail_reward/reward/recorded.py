"""Reward `recorded`: the scores of completions that the data has."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from dovetail.errors import ConfigError, DataError


def _finite(_: Any, attribute: attrs.Attribute[Any], scores: tuple[float, ...]) -> None:
    if not scores or not all(math.isfinite(score) for score in scores):
        raise ConfigError(f"reward.recorded.{attribute.name} = {scores!r}: give finite numbers, such as (1.0, 0.0)")


@attrs.frozen(kw_only=True)
class Recorded:
    """The score of a completion that the engine `recorded` takes from the data, by its place among those of its prompt.

        r_i = scores_i,   i the place of the completion

    Without a column these are the same for all prompts: of the pair of columns `chosen` and `rejected` that the engine
    reads by default, the first gets 1 and the second 0; beyond the last score it abstains. With a column a prompt has
    its own: a list with a number for each completion, or for a prompt with a single completion one number, or whether
    it is right.

    Completions that were sampled, as those of evaluations, are not in the data: the reward abstains. Choose another one
    beside it to evaluate, such as `check_answer`, with a weight of 0: see `docs/preferences.md`.

    Args:
        logps: the log-probabilities of a completion's tokens as sampled; NaN in one that was not sampled.
        group_ids: which prompt a completion answers.
        examples: the records, from which `scores_column` is read.
        scores: the scores of the completions of every prompt, without a `scores_column`.
        scores_column: the dataset column with the scores of a prompt's completions.

    Raises:
        ConfigError: on construction, if a score is not finite.
        DataError: when called, if the column has no score for a completion, or one that is not a number.

    >>> reward, unknown = Recorded(), [float("nan")]
    >>> reward([unknown, unknown, [-0.5]], [0, 0, 1], [{}] * 3)
    [1.0, 0.0, None]
    >>> Recorded(scores_column="label")([unknown], [0], [{"label": True}])
    [1.0]
    """

    scores: tuple[float, ...] = attrs.field(default=(1.0, 0.0), validator=_finite)
    scores_column: str | None = None

    def __call__(
        self, logps: Sequence[Sequence[float]], group_ids: Sequence[int], examples: Sequence[Mapping[str, Any]]
    ) -> list[float | None]:
        """Return one score per completion."""
        places, found = Counter[int](), list[float | None]()
        for row, group, example in zip(logps, group_ids, examples, strict=True):
            recorded = len(row) > 0 and all(math.isnan(each) for each in row)
            found.append(self._score(example, places[int(group)]) if recorded else None)
            places[int(group)] += 1
        return found

    def _score(self, example: Mapping[str, Any], place: int) -> float | None:
        if self.scores_column is None:
            return self.scores[place] if place < len(self.scores) else None
        given = example[self.scores_column]
        numbers = list(given) if hasattr(given, "__len__") and not isinstance(given, str) else [given]
        where = f"reward.recorded.scores_column = {self.scores_column!r}"
        if place >= len(numbers):
            raise DataError(f"{where}: there are {len(numbers)} scores for completion {place + 1} of a prompt")
        try:
            score = math.nan if isinstance(numbers[place], str) else float(numbers[place])
        except (TypeError, ValueError):
            score = math.nan
        if not math.isfinite(score):
            raise DataError(
                f"{where}: the score of completion {place + 1} of a prompt is {numbers[place]!r}, no number"
            )
        return score
