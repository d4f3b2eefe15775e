"""Returns the memory that compiling leaves allocated on the host."""

from __future__ import annotations

import ctypes
import functools
import sys
from typing import Any

import jax

from dovetail.progress import COMPILED, WORTH_TELLING


@functools.cache
def give_back_after_compiling() -> None:
    """Return the compiler's freed memory to the system before the compiled program runs.

    glibc keeps the freed blocks of each compiler thread, hundreds of MiB after a large program, and the program would
    allocate more in addition. Other C libraries do not have such a call; with them nothing is done.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is None:
        return

    def heard(event: str, duration_secs: float, **_: Any) -> None:
        if event == COMPILED and duration_secs > WORTH_TELLING:
            trim(0)

    jax.monitoring.register_event_duration_secs_listener(heard)
