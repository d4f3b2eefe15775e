"""What a reward promises, in a form that a program can read."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

Target = TypeVar("Target", bound=Callable[..., Any])


def declares(
    *,
    range: tuple[float, float] = (-math.inf, math.inf),
    good: Mapping[str, Any] | None = None,
    bad: Mapping[str, Any] | None = None,
    deterministic: bool = True,
) -> Callable[[Target], Target]:
    """Attach to a reward, as its attribute `declares`, what holds of its scores where its settings are the defaults.

    Args:
        range: the least and the greatest score.
        good: a completion under `completions`, with a cell of every other column that the reward reads.
        bad: likewise, one that scores less than `good`.
        deterministic: the same completion gets the same score, whenever and beside whichever others it is scored.

    >>> @declares(range=(0, 1), good={"completions": "yes"}, bad={"completions": "no"})
    ... def reward(completions): ...
    >>> reward.declares["range"]
    (0, 1)
    """
    facts = {"range": range, "good": good, "bad": bad, "deterministic": deterministic}

    def attach(target: Target) -> Target:
        target.declares = facts  # pyright: ignore[reportFunctionMemberAccess]
        return target

    return attach
