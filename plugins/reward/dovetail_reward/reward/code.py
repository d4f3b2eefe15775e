"""Reward `code`: a program or function that a completion writes, run against tests."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, Final, Literal

import attrs
from annotated_types import Ge, Gt

from dovetail.errors import ConfigError, DovetailWarning
from dovetail.registry import declares
from dovetail_kit.workers import cores
from dovetail_reward._sandbox.outside import Ran, protections, run, what_is_open
from dovetail_reward.reward._cases import Case, read_cases
from dovetail_reward.reward._outputs import same_json, same_text

_FENCED = re.compile(r"```[ \t]*+(\w*+)[^`\n]*+\n(.*?)(?:```|\Z)", re.DOTALL)
"""What follows the fence holds no backtick, as in CommonMark, and is not tried in several ways: a policy that writes
100,000 fences or spaces would have the grader try 10^10 of them."""
_PYTHON: Final = ("python", "python3", "py")
_TEST = {"inputs": ["1\n"], "outputs": ["2\n"]}


@declares(
    range=(0, 1),
    examples=[
        (
            {"completions": "```python\nprint(int(input()) + 1)\n```", "tests": _TEST},
            {"completions": "```python\nprint(3)\n```", "tests": _TEST},
        )
    ],
)
@attrs.frozen(kw_only=True)
class Code:
    """The fraction of tests that a completion's Python code passes, from 0.0 to 1.0; or 1.0 only if it passes all.

    The code is the last block fenced as ```` ```python ````, or else the last one without a language, or the whole
    completion if there is no fence. A program reads the test's input and prints; a function is called, by its name or
    as a method of `class Solution`, with the usual imports available (`List`, `defaultdict`, `heapq`, ...). Outputs
    must have the same words on each line; integers must have the same value, and other numbers agree to 6 digits. The
    same holds for returned values.

    Every test runs in a separate process, which drops its privileges before it reads the code. It can read no files
    except Python's library, and write none; it has no network, and cannot start or signal other processes. Memory, time
    and output are limited. It knows only its input, never the expected output, which is compared outside. This requires
    Linux 5.13; if a protection is not available, a warning says which.

    Args:
        completions: texts without special tokens.
        tests: the dataset column with each problem's tests; if it is None the reward abstains. A cell is a dict or
            JSON,

                {"inputs": ["1\\n", "5\\n"], "outputs": ["2\\n", "6\\n"]}
                {"fn_name": "add", "inputs": [[1, 2], [0, 0]], "outputs": [3, 0]}

            The second calls a function, with each input's list as its arguments; also understood are verl's
            texts, `"1\\n2"` for these arguments, one in JSON on each line, and `"3"` for the result.
        score: `fraction`, the fraction of the tests passed; or `all`, 1.0 if all are passed and otherwise 0.0.
        max_tests: use only the first tests of each problem, at most this many; None for all.
        time_limit: seconds for one test.
        memory_mb: address space for one test in MB, including Python itself; must be over 100.
        processes: the number of tests that run concurrently; None is one for each core that the run may use.
        isolation: `full` refuses to run if a protection is not available.

    Returns:
        The scores, and per completion `no_code`, 1 if no code was found, and `late`, 1 if a test ran out of time.

    Raises:
        ConfigError: on construction, if `isolation` is `full` and a protection is not available, or on a system without
            POSIX.
        ValueError: when called, on a cell that does not contain tests.

    Departures:
        As verl's `prime_code`, with differences: it runs the code with your rights, unconfined, in the process that
        scores; it takes 1000001 for 1000000 and lines in any order; with `continuous` it looks at the first 10 tests
        (`max_tests=10`), without it (`score='all'`) it raises where a program fails. It gives the usual names to
        programs, too.

    >>> tests = {"inputs": ["1", "2"], "outputs": ["2", "3"]}
    >>> Code()(["```python\\nprint(int(input()) + 1)\\n```", "print(2)", "I do not know."], [tests] * 3)[0]
    [1.0, 0.5, 0.0]
    """

    score: Literal["fraction", "all"] = "fraction"
    max_tests: Annotated[int, Ge(1)] | None = None
    time_limit: Annotated[float, Gt(0)] = 6.0
    memory_mb: Annotated[int, Gt(100)] = 512
    processes: Annotated[int, Ge(1)] | None = None
    isolation: Literal["full", "any"] = "any"

    def __attrs_post_init__(self) -> None:
        """Check which protections this machine supports."""
        if os.name != "posix":
            raise ConfigError("it needs Linux or macOS: it runs model-written code under limits of POSIX")
        weaker = what_is_open()
        if weaker and self.isolation == "full":
            raise ConfigError(f"{weaker}; isolation = 'any' runs it all the same")
        if weaker:
            warnings.warn(f"reward code: {weaker}", DovetailWarning, stacklevel=2)

    def __call__(
        self, completions: Sequence[str], tests: Sequence[Mapping[str, Any] | str | None]
    ) -> tuple[list[float | None], dict[str, list[float]]]:
        """Return one score per completion, and metrics."""
        cases = [None if cell is None else read_cases(cell)[: self.max_tests] for cell in tests]
        sources = [code_of(text) for text in completions]
        with ThreadPoolExecutor(self.processes or cores()) as threads:
            results = list(threads.map(self._passed, sources, cases))
        metrics = {
            "no_code": [float(source is None) for source in sources],
            "late": [float("late" in ends) for _, ends in results],
        }
        return [score for score, _ in results], metrics

    def _passed(self, source: str | None, cases: Sequence[Case] | None) -> tuple[float | None, list[str]]:
        """Return the score of one completion, and how its runs ended."""
        if cases is None or source is None:
            return None if cases is None else 0.0, []
        passed, ends = 0, []
        for case in cases:
            ran = self._run(source, case)
            ends.append(ran.how)
            right = ran.how == "done" and (same_text if case.call is None else same_json)(ran.output, case.expected)
            if self.score == "all" and not right:
                return 0.0, ends
            passed += right
        return passed / len(cases), ends

    def _run(self, source: str, case: Case) -> Ran:
        return run(
            source,
            stdin=case.stdin,
            call=case.call,
            time_limit=self.time_limit,
            output_limit=case.output_limit,
            memory=self.memory_mb << 20,
            require=protections(),
        )


def code_of(text: str) -> str | None:
    """Return the code in a completion; None if it has fences but no Python in them.

    >>> code_of("```python\\nx\\n``` or ```py\\ny"), code_of("print(1)"), code_of("```cpp\\nx\\n```")
    ('y', 'print(1)', None)
    """
    blocks = [(language.lower(), code) for language, code in _FENCED.findall(text)]
    if not blocks:
        return text
    for languages in (_PYTHON, ("",)):
        found = [code for language, code in blocks if language in languages]
        if found:
            return found[-1]
    return None
