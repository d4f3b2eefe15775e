"""Reward `functions`: a user's functions from a file, with TRL's signature."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import attrs

from dovetail.errors import ConfigError, RewardError
from dovetail.registry import declares
from dovetail.registry.places import first_line, place_of, raised_in
from dovetail_reward.reward._own import is_number, load_function, numbers_of, undone

Parameter = inspect.Parameter
Metrics = dict[str, list[float]]

_GIVEN: Final = ("prompts", "completions", "completion_ids", "log_metric", "log_extra")
"""Arguments other than columns that both TRL and this reward pass to a function."""
_ABSENT: Final = ("trainer_state", "environments")
"""Arguments that only TRL's trainer can provide."""
_BY_NAME: Final = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


@declares(programs=("path",), files=("path",))
@attrs.frozen(kw_only=True)
class Functions:
    """The results of functions in a file for a batch of completions, called as TRL calls its `reward_funcs`.

    A function takes the arguments it needs by name: `completions`, `prompts`, `completion_ids`, and any column of the
    task, each a list with one entry per completion; with `**kwargs` it gets all of them. It returns a list of numbers,
    with None where it abstains, and may be `async`. It works with every task that has its columns:

        def near(completions, answer, **kwargs):
            return [1.0 if text.strip().endswith(right) else 0.0 for text, right in zip(completions, answer)]

    A column that is a parameter without a default must be one of the task's, which is checked before anything is
    loaded. The scores of several functions are added up, and each is logged. Numbers passed to `log_metric(name,
    value)` and `log_extra(name, values)` are logged, too. The file is executed with your privileges: use only one that
    you trust.

    Args:
        completions: texts without special tokens.
        prompts: the prompts, as the model got them.
        examples: the records, with the columns.
        tokens: ids of the completions, passed as `completion_ids`.
        path: the file, relative to the folder in which the run starts; `~` is the home folder.
        name: the function in it, or several.
        weights: factors for the scores of several functions; None means one for each.
        reward_kwargs: further arguments of every function, by name.
        conversational: completions and prompts are lists of messages, as TRL gives them of a conversational dataset:
            one of the assistant, `[{'role': 'assistant', 'content': TEXT}]`, and one of the user.

    Returns:
        The scores, and per completion what the functions have logged, with the score of each where there are several.

    Raises:
        ConfigError: on construction, if the file or a function cannot be used.
        RewardError: if a function raises an exception, or does not return a number or None for each completion.

    Departures:
        There is no `trainer_state`; a function that needs one is refused. The prompt of a conversation is the text that
        the model got, in one message.

    >>> import tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp(), "mine.py")
    >>> _ = file.write_text("def equal(completions, answer): return [c == a for c, a in zip(completions, answer)]")
    >>> reward = Functions(path=str(file), name="equal")
    >>> reward(["42", "41"], ["6 * 7?"] * 2, [{"answer": "42"}] * 2, [[4, 2], [4, 1]])
    ([1.0, 0.0], {})
    >>> reward.columns
    ('answer',)
    """

    path: str
    name: str | tuple[str, ...]
    weights: tuple[float, ...] | None = None
    reward_kwargs: dict[str, Any] | None = None
    conversational: bool = False

    def __attrs_post_init__(self) -> None:
        """Load the functions, and check that they can be called in this way."""
        if self.weights is not None and len(self.weights) != len(self.names):
            raise ConfigError(f"weights = {self.weights} for the functions {', '.join(self.names)}; give one for each")
        for name in self.names:
            self._check(f"{self.path}: {name}", self._parameters(name))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the functions."""
        return (self.name,) if isinstance(self.name, str) else tuple(self.name)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the functions require."""
        needed = [column for name in self.names for column in self._needed(self._parameters(name))]
        return tuple(dict.fromkeys(needed))

    def asks(self, column: str) -> str:
        """Say which function asks for a column, and where it is written; for a task that lacks the column."""
        name = next(name for name in self.names if column in self._needed(self._parameters(name)))
        place = place_of(load_function(self.path, name)).strip(" []") or self.path
        return f"{place}: {name}() asks for '{column}'"

    def __call__(
        self,
        completions: Sequence[str],
        prompts: Sequence[str],
        examples: Sequence[Mapping[str, Any]],
        tokens: Sequence[list[int]],
    ) -> tuple[list[float | None], Metrics]:
        """Return one score per completion, and metrics."""
        logged: Metrics = {}
        columns = {name: [example[name] for example in examples] for name in (examples[0] if examples else ())}
        offered = {name: column for name, column in columns.items() if name != "prompt"} | {
            "prompts": self._messages(prompts, "user"),
            "completions": self._messages(completions, "assistant"),
            "completion_ids": list(tokens),
            "log_metric": lambda name, value: logged.update({name: [float(value)] * len(completions)}),
            "log_extra": lambda name, values: logged.update(_numbers(name, values)),
            **(self.reward_kwargs or {}),
        }
        found = {name: self._scores(name, offered, len(completions)) for name in self.names}
        if len(found) > 1:
            logged |= {name: [math.nan if score is None else score for score in each] for name, each in found.items()}
        weights = self.weights or (1.0,) * len(found)
        return [_sum(scores, weights) for scores in zip(*found.values(), strict=True)], logged

    def _scores(self, name: str, offered: Mapping[str, Any], count: int) -> list[float | None]:
        parameters = self._parameters(name)
        taken = {key: value for key, value in offered.items() if _takes_all(parameters) or key in parameters}
        # lists of its own: what it does to them must not reach the next function
        own = {key: list(value) if isinstance(value, list) else value for key, value in taken.items()}
        function, label = load_function(self.path, name), f"{self.path}: {name}"
        try:
            with undone(label):
                returned = _called(function, own)
        except Exception as error:
            hint = "" if self.conversational else _conversational(error)
            raise RewardError(f"{label} raised {first_line(error)}{raised_in(function, error)}{hint}") from error
        try:
            return numbers_of(returned, count, label)
        except (TypeError, ValueError) as error:
            raise RewardError(str(error)) from error

    def _parameters(self, name: str) -> Mapping[str, inspect.Parameter]:
        return inspect.signature(load_function(self.path, name)).parameters

    def _needed(self, parameters: Mapping[str, inspect.Parameter]) -> list[str]:
        there = (*_GIVEN, *(self.reward_kwargs or {}))
        required = (each for each in parameters.values() if each.default is Parameter.empty and each.kind in _BY_NAME)
        return [each.name for each in required if each.name not in there]

    def _check(self, label: str, parameters: Mapping[str, inspect.Parameter]) -> None:
        for name, parameter in parameters.items():
            if parameter.kind is Parameter.POSITIONAL_ONLY:
                raise ConfigError(f"{label} takes '{name}' by position; a reward function gets everything by name")
        absent = [name for name in _ABSENT if name in self._needed(parameters)]
        if absent:
            raise ConfigError(f"{label} needs '{absent[0]}', which only TRL's trainer has; give it a default")
        unknown = [name for name in self.reward_kwargs or {} if name not in parameters and not _takes_all(parameters)]
        if unknown:
            raise ConfigError(f"{label} has no parameter '{unknown[0]}', which is in reward_kwargs")

    def _messages(self, texts: Sequence[str], role: str) -> list[Any]:
        return [[{"role": role, "content": text}] for text in texts] if self.conversational else list(texts)


def _takes_all(parameters: Mapping[str, inspect.Parameter]) -> bool:
    return any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters.values())


def _conversational(error: Exception) -> str:
    """Return a hint for a function that reads a text as a list of messages: `completion[0]["content"]`."""
    if "indices must be integers" not in str(error):
        return ""
    return "; completions and prompts are texts: for lists of messages set reward.functions.conversational = True"


def _called(function: Callable[..., Any], taken: dict[str, Any]) -> Any:
    if not inspect.iscoroutinefunction(function):
        return function(**taken)
    with ThreadPoolExecutor(1) as thread:  # a notebook's own thread has an event loop already
        return thread.submit(asyncio.run, function(**taken)).result()


def _numbers(name: str, values: Sequence[Any]) -> Metrics:
    """Return the values that a function logs per completion if they are numbers; others cannot be metrics."""
    if not all(value is None or is_number(value) for value in values):
        return {}
    return {name: [math.nan if value is None else float(value) for value in values]}


def _sum(scores: Sequence[float | None], weights: Sequence[float]) -> float | None:
    """Add up the scores that are not None.

    >>> _sum([1.0, None], [0.5, 1.0]), _sum([None], [1.0])
    (0.5, None)
    """
    given = [weight * score for score, weight in zip(scores, weights, strict=True) if score is not None]
    return sum(given) if given else None
