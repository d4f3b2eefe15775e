"""Equality of mathematical answers by the library math-verify, in separate processes (see `dovetail_kit.workers`)."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import sys
from collections.abc import Callable, Sequence
from typing import Final

from dovetail.errors import ConfigError
from dovetail.extras import needs
from dovetail_kit.workers import LATE, workers

MEMORY: Final = 4 << 30
"""Bytes of address space that a comparison may take."""


def need_library() -> None:
    """Raise a ConfigError if the library is not installed."""
    if importlib.util.find_spec("math_verify") is None:
        raise ConfigError(needs("it", "the library math-verify", "math"))


def equal(cases: Sequence[tuple[str, ...]], *, time_limit: float, processes: int | None) -> list[bool]:
    r"""Return whether the library finds texts and right answers equal; one that takes too long counts as unequal.

    A case is a text, the right answer, and perhaps a text to read instead if there is no mathematics in the first.

    A comparison may need any amount of time and memory, so both are limited. Only digits and operators of a text ever
    reach Python's own parser.

    >>> equal([(r"\boxed{2/4}", r"\frac{1}{2}"), (r"\boxed{3}", "2")], time_limit=60, processes=1)
    [True, False]
    """
    results = workers(load_equivalent, processes).map(cases, time_limit=time_limit) if cases else []
    return [False if result is LATE else bool(result) for result in results]


def load_equivalent() -> Callable[..., bool]:
    """Import the library, limit the memory of this process, and return `equivalent`."""
    library = importlib.import_module("math_verify")
    latex, expression = library.LatexExtractionConfig(), library.ExprExtractionConfig()
    logging.getLogger("math_verify").setLevel(logging.CRITICAL)
    _limit_memory()

    def equivalent(text: str, truth: str, instead: str = "") -> bool:
        right = library.parse(rf"\boxed{{{truth}}}", [latex], parsing_timeout=None)
        found = library.parse(text, [expression, latex], parsing_timeout=None)
        if instead and all(isinstance(each, str) for each in found):
            found = library.parse(instead, [expression, latex], parsing_timeout=None)
        return library.verify(right, found, timeout_seconds=None)

    return equivalent


def _limit_memory() -> None:
    if sys.platform == "linux":
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
