"""Environment variables of the command line."""

from __future__ import annotations

import difflib
import os
import warnings
from typing import Final

from dovetail.errors import DovetailWarning
from dovetail.registry.disabled import DISABLE
from dovetail.registry.one_file import FILES

TRACEBACK: Final = "DOVETAIL_TRACEBACK"
PREFIX: Final = "DOVETAIL_"
OWN: Final = (DISABLE, FILES, TRACEBACK)
ALIKE: Final = 0.75
"""How alike, from 0 to 1, the rest of a name must be to count as misspelt: plugins have variables of their own."""


def shows_tracebacks() -> bool:
    """Tell whether the environment asks for tracebacks."""
    return os.environ.get(TRACEBACK, "") not in ("", "0")


def warn_of_misspelt() -> None:
    """Warn of variables that are nearly one of ours, which would have no effect."""
    known = {name.removeprefix(PREFIX): name for name in OWN}
    for name in sorted(os.environ):
        if name.startswith(PREFIX) and name not in OWN:
            near = difflib.get_close_matches(name.removeprefix(PREFIX), known, n=1, cutoff=ALIKE)
            if near:
                said = f"the environment variable {name} has no effect. Did you mean {known[near[0]]}?"
                warnings.warn(said, DovetailWarning, stacklevel=2)
