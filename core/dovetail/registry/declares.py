"""What a component promises, in a form that a program can read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

Target = TypeVar("Target", bound=Callable[..., Any])


def declares(
    *,
    settings: Mapping[str, Any] | None = None,
    expected_failures: Mapping[str, str] | None = None,
    **claims: Any,
) -> Callable[[Target], Target]:
    """Attach to a component, as its attribute `declares`, what it promises; `dovetail_kit` holds it to that.

    Args:
        settings: hyperparameters under which it is checked, where the defaults do not do, or there are none.
        expected_failures: checks that it is known to fail, each with the reason. One that passes is an error.
        claims: by name, as listed in `docs/conformance.md`: `on_policy_gradient=True`, `range=(0, 1)`, ...

    >>> @declares(unbiased_value=True)
    ... def estimator(): ...
    >>> estimator.declares["unbiased_value"]
    True
    """
    given = {"settings": settings, "expected_failures": expected_failures}
    facts = claims | {name: value for name, value in given.items() if value is not None}

    def attach(target: Target) -> Target:
        target.declares = facts  # pyright: ignore[reportFunctionMemberAccess]
        return target

    return attach
