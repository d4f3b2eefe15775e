"""Tool `faulty_calculator`: a calculator that is sometimes busy, as real services are."""

from __future__ import annotations

import hashlib
import time
from typing import Annotated

from annotated_types import Ge, Interval

from dovetail.protocols import Result
from dovetail_agent.tool.calculator import calculator


def faulty_calculator(
    expression: str,
    state: int | None,
    *,
    failing: Annotated[float, Interval(ge=0, le=1)] = 0.2,
    slow: Annotated[float, Interval(ge=0, le=1)] = 0.0,
    delay: Annotated[float, Ge(0)] = 0.0,
    seed: int = 0,
) -> Result:
    """Calculate an expression of numbers, + - * / and parentheses; it may be busy, and then asking again helps.

    Whether a call fails depends on `seed`, the expression and how many calls there have been in the episode, and on
    nothing else: an episode can be played again, and the share of failures is that of different expressions.

    Args:
        expression: for example (12 + 30) * 2.
        state: the number of calls so far; the model does not see it.
        failing: the share of the calls that fail.
        slow: the share of the calls that take `delay`.
        delay: seconds.
        seed: has other calls fail.

    Returns:
        The result, or that the calculator is busy.

    Raises:
        ValueError: as the tool `calculator`.

    >>> first = faulty_calculator("4 + 1", None, failing=0.5)
    >>> first.text, faulty_calculator("4 + 1", first.state, failing=0.5).text
    ('busy, ask again', '5')
    """
    calls = state or 0
    digest = hashlib.sha256(f"{seed} {calls} {expression}".encode(errors="replace")).digest()
    fails, waits = (int.from_bytes(part) / 2**64 for part in (digest[:8], digest[8:16]))
    if waits < slow:
        time.sleep(delay)
    said = "busy, ask again" if fails < failing else calculator(expression)
    return Result(said, state=calls + 1)
