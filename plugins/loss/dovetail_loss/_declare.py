"""What an estimator promises, in a form that a program can read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


def declares(
    *, unbiased_value: bool, unbiased_gradient: bool, zero_expected_gradient: bool = False
) -> Callable[[Function], Function]:
    """Attach to a KL estimator, as its attribute `declares`, what holds in expectation over its samples.

    Args:
        unbiased_value: the expected value is KL(π || π_ref).
        unbiased_gradient: the expected gradient, through `logps` alone, is that of KL(π || π_ref).
        zero_expected_gradient: the expected gradient is zero; as a loss it adds noise and nothing else.

    >>> @declares(unbiased_value=True, unbiased_gradient=False)
    ... def estimator(): ...
    >>> estimator.declares["unbiased_value"]
    True
    """
    facts = {
        "unbiased_value": unbiased_value,
        "unbiased_gradient": unbiased_gradient,
        "zero_expected_gradient": zero_expected_gradient,
    }

    def attach(function: Function) -> Function:
        function.declares = facts  # pyright: ignore[reportFunctionMemberAccess]
        return function

    return attach
