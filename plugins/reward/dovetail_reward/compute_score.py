"""Reward `compute_score`: a function of one's own, from a file, with verl's signature."""

from __future__ import annotations

import functools
import importlib.util
import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs

from dovetail.errors import ConfigError, listing, nearest
from dovetail_reward._workers import LATE, workers

_GIVEN = ("data_source", "solution_str", "ground_truth", "extra_info")


@attrs.frozen(kw_only=True)
class ComputeScore:
    """What `compute_score(data_source, solution_str, ground_truth, extra_info)` in a file returns, for each completion.

    The function is called as verl calls its `custom_reward_function`: with these four by name, and `reward_kwargs`.
    It returns a number, a bool, a sequence that begins with one, a dict with one under `score`, or None to abstain.
    The columns `data_source`, `ground_truth` and `extra_info` must be the task's; verl keeps the second in its column
    `reward_model`. The file is run as a program is: name one that you trust.

    Without `time_limit` the function is called here, one completion after the other, and an error stops the run.
    With it, completions are scored by several processes, so that none can hold up the run: verl's `prime` manager.

    Args:
        path: the file, from the folder in which the run starts; `~` is the home folder.
        name: the function in it.
        reward_kwargs: further arguments, by name.
        time_limit: seconds for one completion.
        late_score: what a completion scores that takes longer, or ends the process; None: the reward abstains.
        processes: completions at a time, where there is a time limit.

    Raises:
        ConfigError: when called, if the file or the function cannot be used.

    Departures:
        verl's prime manager scores what is late, or raises, 0; here the first abstains and the second is an error.
        `async` functions are refused.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp(), "mine.py")
    >>> head = "def equal(data_source, solution_str, ground_truth, extra_info):"
    >>> _ = file.write_text(head + " return solution_str == ground_truth")
    >>> ComputeScore(path=str(file), name="equal")(["42", "41"], ["mine"] * 2, ["42"] * 2, [None] * 2)
    [1.0, 0.0]
    """

    path: str
    name: str = "compute_score"
    reward_kwargs: dict[str, Any] | None = None
    time_limit: float | None = None
    late_score: float | None = None
    processes: int = 4

    def __call__(
        self,
        completions: Sequence[str],
        data_source: Sequence[Any],
        ground_truth: Sequence[Any],
        extra_info: Sequence[Any],
    ) -> list[float | None]:
        """Return one score per completion."""
        function = _load(self.path, self.name)
        extra = self.reward_kwargs or {}
        _check_arguments(function, f"{self.path}: {self.name}", (*_GIVEN, *extra))
        calls = [
            (dict(zip(_GIVEN, given, strict=True)) | extra,)
            for given in zip(data_source, completions, ground_truth, extra_info, strict=True)
        ]
        if self.time_limit is None:
            return [_number(function(**arguments)) for (arguments,) in calls]
        pool = workers(_Scorer(self.path, self.name), self.processes)
        return [self.late_score if s is LATE else s for s in pool.map(calls, time_limit=self.time_limit)]


@attrs.frozen
class _Scorer:
    """Loads the function in a process of its own."""

    path: str
    name: str

    def __call__(self) -> Callable[[dict[str, Any]], float | None]:
        function = _load(self.path, self.name)
        return lambda arguments: _number(function(**arguments))


@functools.cache
def _load(path: str, name: str) -> Callable[..., Any]:
    file = Path(path).expanduser().resolve()
    module_name = f"_compute_score_{file.stem}"
    spec = importlib.util.spec_from_file_location(module_name, file)
    if not file.is_file() or spec is None or spec.loader is None:
        raise ConfigError(f"reward.compute_score.path = {path!r}: there is no Python file {file}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[module_name]
        raise ConfigError(f"{path} cannot be run: {type(error).__name__}: {error}") from error
    function = getattr(module, name, None)
    if not callable(function):
        found = [key for key, value in vars(module).items() if inspect.isfunction(value)]
        raise ConfigError(f"{path} has no function '{name}'.{nearest(name, found)} Functions: {listing(found)}")
    if inspect.iscoroutinefunction(function):
        raise ConfigError(f"{path}: {name} is async; write it as a plain function, and set time_limit to run several")
    return function


def _check_arguments(function: Callable[..., Any], label: str, names: Sequence[str]) -> None:
    signature = inspect.signature(function)
    try:
        signature.bind(**dict.fromkeys(names))
    except TypeError as error:
        raise ConfigError(f"{label}{signature} is called with {', '.join(names)}: {error}") from error


def _number(result: Any) -> float | None:
    if isinstance(result, dict):
        result = result["score"]
    elif isinstance(result, Sequence) and not isinstance(result, str):
        result = result[0]
    return None if result is None else float(result)
