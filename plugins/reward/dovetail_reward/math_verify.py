"""Reward `math_verify`: an answer that is mathematically equal to the right one."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

from dovetail.errors import ConfigError
from dovetail_reward._equivalence import load_equivalent
from dovetail_reward._latex import bare, boxed_answer, same_answer, stated_answer
from dovetail_reward._numbers import Truth, spelled
from dovetail_reward._workers import LATE, workers


def math_verify(
    completions: Sequence[str],
    answer: Sequence[Truth],
    *,
    time_limit: float = 5.0,
    processes: int = 2,
    verl_compatible: bool = False,
) -> list[float | None]:
    r"""1.0 where the answer of a completion equals the right one, in whatever form; else 0.0.

    The answer is the content of the last box, or without one what follows the last `Answer:`, or else what the
    library finds in the text. Equal are numbers to 6 decimals, expressions that simplify to one another, sets,
    intervals, matrices and equations: https://github.com/huggingface/Math-Verify. Needs the extra
    `dovetail[math]`. What is equal already but for typography (see reward `math`) does not go to the library.

    The library works in processes of its own, as a comparison may take any time and memory. Of a completion no
    more than digits and operators ever reach Python's own parser.

    Args:
        completions: texts without special tokens.
        answer: the dataset column with the right answers, without their box, text or numbers; where it is None the
            reward abstains.
        time_limit: seconds for one comparison; one that takes longer is worth 0.0.
        processes: comparisons at a time.
        verl_compatible: leave finding the answer to the library, as verl does.

    Raises:
        ConfigError: if the library is not installed.

    Departures:
        verl gives the whole completion to the library, which reads `\boxed{1}\boxed{42}` as two answers, finds none
        in `Answer:42`, and knows neither `４２` nor `\fbox`. verl's other scorer, `prime_math`, does without the
        library: to it `10^{3}` is not 1000, `\boxed{42` is 42, and `#### 42`, for want of a box, is no number.
        Library versions differ: `50%` is 50 as of 0.9, and was not before.

    >>> math_verify([r"\boxed{\frac{1}{2}}", "42"], ["1/2", None])
    [1.0, None]
    """
    scores: list[float | None] = [None] * len(completions)
    open_cases: dict[int, tuple[str, str]] = {}
    for i, (text, truth) in enumerate(zip(completions, answer, strict=True)):
        if truth is None:
            continue
        guess = None if verl_compatible else _stated(text)
        if guess and same_answer(guess, spelled(truth)):
            scores[i] = 1.0
        else:
            open_cases[i] = (text if guess is None else rf"\boxed{{{guess}}}", spelled(truth))
    for i, score in zip(open_cases, _by_library(list(open_cases.values()), time_limit, processes), strict=True):
        scores[i] = score
    return scores


def _stated(text: str) -> str | None:
    boxed, stated = boxed_answer(text), stated_answer(text)
    if boxed is None and stated is not None:
        return bare(stated)
    return boxed


def _by_library(cases: list[tuple[str, str]], time_limit: float, processes: int) -> list[float]:
    if not cases:
        return []
    if importlib.util.find_spec("math_verify") is None:
        raise ConfigError('reward math_verify needs the library math-verify: pip install "dovetail[math]"')
    results = workers(load_equivalent, processes).map(cases, time_limit=time_limit)
    return [0.0 if result is LATE else float(result) for result in results]
