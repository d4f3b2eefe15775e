"""Reward `math_verify`: an answer that is mathematically equal to the right one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import attrs
from annotated_types import Ge, Gt

from dovetail.registry import declares
from dovetail_reward._latex import bare, boxed_answer, same_answer, same_scale, stated_answer
from dovetail_reward._numbers import Truth, spelled
from dovetail_reward.reward._equivalence import equal, need_library


@declares(
    range=(0, 1),
    examples=[
        ({"completions": r"\boxed{\frac{2}{4}}", "answer": "1/2"}, {"completions": r"\boxed{2}", "answer": "1/2"})
    ],
)
@attrs.frozen(kw_only=True)
class MathVerify:
    r"""1.0 if the answer of a completion is mathematically equal to the right one, otherwise 0.0.

    The answer is the content of the last box, or without one the text after the last `Answer:` (see reward
    `math_dapo`), or else, also if that text holds no mathematics, what the library finds in the completion. The library
    compares numbers to 6 decimals, expressions that simplify to one another, sets, intervals, matrices and equations:
    https://github.com/huggingface/Math-Verify. Needs the extra `math`. Answers that differ only in typography (see
    reward `math`) are compared without it, and so are those of which only one has `million` or `p.m.`, words that it
    leaves out.

    The library runs in separate processes, because a comparison may need any amount of time and memory.

    Args:
        completions: texts without special tokens.
        answer: the dataset column with the right answers, without their box, text or numbers; where it is None the
            reward abstains.
        time_limit: seconds for one comparison; one that takes longer scores 0.0.
        processes: the number of concurrent comparisons; None is one for each core that the run may use.
        verl_compatible: let the library find the answer, as verl does.

    Raises:
        ConfigError: on construction, if the library is not installed.

    Departures:
        verl passes the whole completion to the library, which reads `\boxed{1}\boxed{42}` as two answers, finds none in
        `Answer:42`, and understands neither `４２` nor `\fbox`. verl's other scorer, `prime_math`, does not use the
        library: there `10^{3}` is not 1000, `\boxed{42` is 42, and `#### 42`, which has no box, is not an answer.
        Library versions differ: since 0.9, `50%` is 50.

    >>> MathVerify()([r"\boxed{\frac{1}{2}}", "42"], ["1/2", None])
    [1.0, None]
    """

    time_limit: Annotated[float, Gt(0)] = 5.0
    processes: Annotated[int, Ge(1)] | None = None
    verl_compatible: bool = False

    def __attrs_post_init__(self) -> None:
        """Check that the library is installed."""
        need_library()

    def __call__(self, completions: Sequence[str], answer: Sequence[Truth]) -> list[float | None]:
        """Return one score per completion."""
        scores: list[float | None] = [None] * len(completions)
        open_cases: dict[int, tuple[str, ...]] = {}
        for i, (text, truth) in enumerate(zip(completions, answer, strict=True)):
            if truth is None:
                continue
            case = (text, spelled(truth)) if self.verl_compatible else _case(text, spelled(truth))
            if isinstance(case, tuple):
                open_cases[i] = case
            else:
                scores[i] = case
        found = equal(list(open_cases.values()), time_limit=self.time_limit, processes=self.processes)
        for i, right in zip(open_cases, found, strict=True):
            scores[i] = float(right)
        return scores


def _case(text: str, truth: str) -> float | tuple[str, ...]:
    """Return the score where the library is not needed, else what it must compare."""
    boxed = boxed_answer(text)
    guess = stated_answer(text) if boxed is None else boxed
    if not guess:
        return (text if guess is None else r"\boxed{}"), truth
    if same_answer(guess, truth):
        return 1.0
    if not same_scale(guess, truth):
        return 0.0
    case = rf"\boxed{{{bare(guess)}}}", truth
    return case if boxed is not None else (*case, text)
