"""The pass-or-fail checks that an evaluation applies to completions."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, Final

import attrs
import numpy as np
from jaxtyping import Bool

from dovetail.config import Config
from dovetail.errors import ConfigError, listing
from dovetail.host.rewards import Scorer
from dovetail.host.sampling import Sampled
from dovetail.protocols import Task
from dovetail.registry import Component
from dovetail.step.algorithm import part

ACCURACY: Final = "accuracy"
ABOVE_ZERO: Final = float(np.finfo(np.float64).tiny)
"""The threshold of a check that any positive score passes: the smallest positive normal float64."""

Answers = Callable[[Sequence[str]], Sequence[str | None]]
"""A component of kind `answer`, with its hyperparameters set."""


@attrs.frozen(kw_only=True)
class Check:
    """Whether the score of a completion reaches a threshold: that of a reward or, without one, the total score."""

    name: str
    scorer: Scorer | None
    at_least: float

    def __call__(self, sampled: Sampled) -> Bool[np.ndarray, "seq"]:
        """Return which completions pass; one without a score does not."""
        if self.scorer is None:
            scores = sampled.scores.total
        else:
            given = sampled.examples, sampled.texts, sampled.completions, sampled.group_size
            table, _ = self.scorer.table(*given, sampled.completed.episodes)
            scores = table[:, 0]
        return np.nan_to_num(scores, nan=-np.inf) >= self.at_least


def make_checks(config: Config, scorer: Scorer, task: Task) -> tuple[Check, ...]:
    """Return the checks of an evaluation: accuracy first, then those for which `eval` names a reward.

    Raises:
        DovetailError: if a reward reads a column that the task does not have, or the settings of `eval` are
            inconsistent.
    """
    settings, name = config.eval, config.choice("eval.task").component.name
    scorer.check_columns(task.columns, name)
    checks = []
    for check, role, at_least in (
        (ACCURACY, "success", settings.success_at),
        ("partial_accuracy", "partial", ABOVE_ZERO),
        ("format_accuracy", "format", ABOVE_ZERO),
    ):
        chosen = config.choices.get(f"eval.{role}")
        if chosen:
            reward = part(f"eval.{role}", chosen)
            reward.build()  # so that a missing file or library is reported now
            own = attrs.evolve(scorer, rewards=(reward,))
            own.check_columns(task.columns, name)
            checks.append(Check(name=check, scorer=own, at_least=at_least))
        elif check == ACCURACY:
            checks.append(Check(name=check, scorer=None, at_least=at_least))
    _check_sizes(config)
    return tuple(checks)


def _check_sizes(config: Config) -> None:
    settings = config.eval
    for setting, sizes in (("pass_at", settings.pass_at), ("majority_at", settings.majority_at)):
        if settings.samples and not all(0 < k <= settings.samples for k in sizes):
            raise ConfigError(f"eval.{setting} = {sizes} needs numbers from 1 to eval.samples = {settings.samples}")
    if settings.majority_at and settings.answer is None:
        raise ConfigError(
            f"eval.majority_at = {settings.majority_at} needs a component that extracts answers: set eval.answer to one"
            f" of {listing(config.registry.names('answer'))}"
        )


def make_answers(config: Config) -> Answers | None:
    """Return the callable that extracts the answers for majority votes; None if `eval.majority_at` is empty.

    It raises a `PluginError`, naming the component, if that raises or returns anything but a text or None for each
    completion.
    """
    choice = config.choices.get("eval.answer") if config.eval.majority_at else None
    return functools.partial(_answers, choice.component, choice.bind()) if choice else None


def _answers(component: Component, extract: Answers, completions: Sequence[str]) -> list[str | None]:
    size = len(completions)
    with component.named():
        given: Any = extract(completions)
        is_list = np.iterable(given) and not isinstance(given, str | bytes | Mapping | Set)
        found: list[Any] = list(itertools.islice(given, size + 1)) if is_list else []
    strange = next((each for each in found if not (each is None or isinstance(each, str))), None)
    if not is_list:
        how = f"returned {given!r:.80}" + (", as a function without `return` does" if given is None else "")
    elif len(found) != size:
        how = f"returned {'more than ' * (len(found) > size)}{min(len(found), size)} answers for {size} completions"
    elif strange is not None:
        how = f"gave the answer {strange!r:.80}"
    else:
        return found
    raise component.wrong(f"{how}; return a list with a text or None for each completion")
