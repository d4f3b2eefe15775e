"""The message where a device or the machine has run out of memory in spite of the plan."""

from __future__ import annotations

import sys
from typing import Final

CODE: Final = "RESOURCE_EXHAUSTED"
"""The status code with which XLA begins its message."""
ADVICE: Final = (
    "`dovetail plan CONFIG` says what a step takes, and memory.limit, in GiB, how much it may; another program may hold"
    " the memory (`dovetail doctor` lists those on a GPU). docs/out_of_memory.md says more"
)


def out_of_memory(error: BaseException) -> str | None:
    """Return what to tell the user of an error, or of its cause, that says that there is no memory; otherwise None."""
    jax = sys.modules.get("jax")  # a command that has not imported it cannot have failed in it
    kinds = (MemoryError,) if jax is None else (MemoryError, jax.errors.JaxRuntimeError)
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, kinds) and (isinstance(cause, MemoryError) or CODE in str(cause)):
            said = str(cause).replace("\n", " ") or type(cause).__name__
            return f"out of memory: {said}; {ADVICE}"
        cause = cause.__cause__
    return None
