"""Reward `compute_score`: a user's function from a file, with verl's signature."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, Final

import attrs
from annotated_types import Ge, Gt

from dovetail.errors import ConfigError, RewardError, listing
from dovetail.registry import declares
from dovetail_kit.workers import LATE, workers
from dovetail_reward.reward._own import as_many, check_arguments, is_number, load_function, number_of, undone
from dovetail_reward.reward._rate import shared_rate

_AWAITED: Final = 4
"""Calls of an `async` function at a time; it waits for a server, which need not be ours."""
_GIVEN: Final = ("data_source", "solution_str", "ground_truth", "extra_info")
_GIVEN_BATCHED: Final = ("data_sources", "solution_strs", "ground_truths", "extra_infos")

Result = tuple[float | None, dict[str, float]]
"""A score, and the other numbers that the function returns."""


@declares(programs=("path",), files=("path",))
@attrs.frozen(kw_only=True)
class ComputeScore:
    """The result of `compute_score(data_source, solution_str, ground_truth, extra_info)` in a file, per completion.

    The function is called as verl calls its `custom_reward_function`: with these four by name, and `reward_kwargs`. It
    returns a number, a bool, a sequence that begins with one, a dict with one under `score`, or None to abstain. Other
    numbers in the dict are logged. The arguments other than the completion are columns of the task, which the settings
    `..._column` name: `ground_truth_column = 'answer'` for most tasks of Dovetail, and for data made for verl
    `'reward_model.ground_truth'`, which is the entry `ground_truth` of the column `reward_model`. If a setting is None,
    the function gets None. The file is executed with your privileges: use only one that you trust. For functions with
    TRL's signature, use the reward `functions`.

    It is called in one of these ways:

    * by default, for one completion after another, in this process; an error stops the run.
    * with `time_limit`, in several processes, so that no call can hold up the run: verl's `prime` manager.
    * with `batched`, once for all completions, with lists as arguments of plural names (`solution_strs`): verl's
      `batch`.
    * an `async` function, for several completions concurrently, as for requests to a server: verl's `rate_limited`.

    Args:
        completions: texts without special tokens, given as `solution_str`.
        examples: the records, with the columns.
        path: the file, relative to the folder in which the run starts; `~` is the home folder.
        name: the function in it.
        data_source_column, ground_truth_column, extra_info_column: the columns whose values are passed, unchanged,
            under these names, or `column.key` for an entry of a column of dicts.
        reward_kwargs: further arguments, by name.
        batched: whether the function takes lists and returns a list.
        time_limit: seconds for one completion. An `async` function is cancelled when it next awaits something.
        late_score: the score of a completion whose call takes longer, or ends the process; None: the reward abstains.
        concurrency: the number of concurrent calls, with a time limit or an `async` function; None is one for each core
            that the run may use, and 4 of an `async` function, which waits for others.
        calls_per_second: the maximum rate of calls of an `async` function.

    Returns:
        The scores, and per completion the other numbers in the dict; with a time limit `late`, 1 if it took longer.

    Raises:
        ConfigError: on construction, if the file or the function cannot be used.
        RewardError: if a record lacks an entry that `column.key` names.

    Departures:
        verl's `prime` and `rate_limited` managers score 0 for a call that is late or raises an exception; here the
        reward abstains on a late call, and an exception is an error.

    >>> import tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp(), "mine.py")
    >>> head = "def equal(data_source, solution_str, ground_truth, extra_info):"
    >>> _ = file.write_text(head + " return {'score': solution_str == ground_truth, 'length': len(solution_str)}")
    >>> sums = {"data_source_column": None, "ground_truth_column": "answer", "extra_info_column": None}
    >>> ComputeScore(path=str(file), name="equal", **sums)(["42", "41."], [{"answer": "42"}] * 2)
    ([1.0, 0.0], {'length': [2.0, 3.0]})
    """

    path: str
    name: str = "compute_score"
    data_source_column: str | None = "data_source"
    ground_truth_column: str | None = "ground_truth"
    extra_info_column: str | None = "extra_info"
    reward_kwargs: dict[str, Any] | None = None
    batched: bool = False
    time_limit: Annotated[float, Gt(0)] | None = None
    late_score: float | None = None
    concurrency: Annotated[int, Ge(1)] | None = None
    calls_per_second: Annotated[float, Gt(0)] | None = None

    def __attrs_post_init__(self) -> None:
        """Load the function, and check that it can be called in the chosen way."""
        function = load_function(self.path, self.name)
        label = f"{self.path}: {self.name}"
        names = _GIVEN_BATCHED if self.batched else _GIVEN
        check_arguments(function, label, (*names, *(self.reward_kwargs or {})))
        waits = inspect.iscoroutinefunction(function)
        if self.batched and (waits or self.time_limit is not None):
            raise ConfigError(
                f"{label} gets all completions at once (batched); that takes a plain function, no time_limit"
            )
        if self.calls_per_second is not None and not waits:
            raise ConfigError(f"{label} is not an async function, and calls_per_second is for those only")

    def __call__(
        self, completions: Sequence[str], examples: Sequence[Mapping[str, Any]]
    ) -> tuple[list[float | None], dict[str, list[float]]]:
        """Return one score per completion, and metrics."""
        function, extra = load_function(self.path, self.name), self.reward_kwargs or {}
        data_source, ground_truth, extra_info = (
            [None if name is None else _entry(example, name) for example in examples]
            for name in (self.data_source_column, self.ground_truth_column, self.extra_info_column)
        )
        columns = (data_source, completions, ground_truth, extra_info)
        calls = [dict(zip(_GIVEN, given, strict=True)) | extra for given in zip(*columns, strict=True)]
        with undone(f"{self.path}: {self.name}"):
            if self.batched:
                returned = function(**dict(zip(_GIVEN_BATCHED, map(list, columns), strict=True)), **extra)
                return _together([_result(each) for each in as_many(returned, len(completions), self.name)])
            if inspect.iscoroutinefunction(function):
                return _together(self._awaited(function, calls))
            if self.time_limit is None:
                return _together([_result(function(**arguments)) for arguments in calls])
        pool = workers(_Scorer(self.path, self.name), self.concurrency)
        found = pool.map([(arguments,) for arguments in calls], time_limit=self.time_limit)
        return _together([self._timed(None if result is LATE else result) for result in found])

    def _timed(self, result: Result | None) -> Result:
        return (self.late_score, {"late": 1.0}) if result is None else (result[0], result[1] | {"late": 0.0})

    def _awaited(self, function: Callable[..., Any], calls: Sequence[dict[str, Any]]) -> list[Result]:
        async def scored(free: asyncio.Semaphore, arguments: dict[str, Any]) -> Result:
            async with free:
                if self.calls_per_second is not None:
                    rate = shared_rate(f"{self.path}:{self.name}", self.calls_per_second)
                    await asyncio.sleep(rate.reserve())
                if self.time_limit is None:
                    return _result(await function(**arguments))
                try:
                    return self._timed(_result(await asyncio.wait_for(function(**arguments), self.time_limit)))
                except TimeoutError:
                    return self._timed(None)

        async def all_of_them() -> list[Result]:
            free = asyncio.Semaphore(self.concurrency or _AWAITED)
            return await asyncio.gather(*(scored(free, arguments) for arguments in calls))

        with ThreadPoolExecutor(1) as thread:  # a notebook's own thread has an event loop already
            return thread.submit(asyncio.run, all_of_them()).result()


@attrs.frozen
class _Scorer:
    """Loads the function in a separate process."""

    path: str
    name: str

    def __call__(self) -> Callable[[dict[str, Any]], Result]:
        function = load_function(self.path, self.name)
        return lambda arguments: _result(function(**arguments))


def _entry(example: Mapping[str, Any], name: str) -> Any:
    """Return a column, or the entry of a column of dicts.

    >>> _entry({"reward_model": {"ground_truth": "7"}}, "reward_model.ground_truth")
    '7'
    """
    column, _, key = name.partition(".")
    if name in example or not key:
        return example[name]
    inside = example[column]
    if not isinstance(inside, Mapping) or key not in inside:
        found = listing(list(inside)) if isinstance(inside, Mapping) else repr(inside)
        raise RewardError(f"'{name}': the column '{column}' has no entry '{key}'. It has: {found}")
    return inside[key]


def _result(returned: Any) -> Result:
    score, metrics = returned, {}
    if isinstance(returned, Mapping):
        score = returned["score"]
        numbers = {name: value for name, value in returned.items() if is_number(value)}
        metrics = {str(name): float(value) for name, value in numbers.items() if name != "score"}
    elif isinstance(returned, Sequence) and not isinstance(returned, str):
        score = returned[0]
    return number_of(score, "the function"), metrics


def _together(results: Sequence[Result]) -> tuple[list[float | None], dict[str, list[float]]]:
    names = sorted({name for _, metrics in results for name in metrics})
    return (
        [score for score, _ in results],
        {name: [metrics.get(name, math.nan) for _, metrics in results] for name in names},
    )
