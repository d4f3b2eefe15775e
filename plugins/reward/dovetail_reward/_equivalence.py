"""Equality of mathematical answers by the library math-verify; runs in a process of its own (see `_workers`)."""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Callable
from typing import Final

MEMORY: Final = 4 << 30
"""Bytes of address space that a comparison may take."""


def load_equivalent() -> Callable[[str, str], bool]:
    """Import the library, bound this process's memory, and return `equivalent`."""
    library = importlib.import_module("math_verify")
    latex, expression = library.LatexExtractionConfig(), library.ExprExtractionConfig()
    logging.getLogger("math_verify").setLevel(logging.CRITICAL)
    _limit_memory()

    def equivalent(text: str, truth: str) -> bool:
        right = library.parse(rf"\boxed{{{truth}}}", [latex], parsing_timeout=None)
        found = library.parse(text, [expression, latex], parsing_timeout=None)
        return library.verify(right, found, timeout_seconds=None)

    return equivalent


def _limit_memory() -> None:
    if sys.platform == "linux":
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
