"""What compiling leaves behind in the host's memory."""

from __future__ import annotations

import ctypes
import functools
import sys
from typing import Any

import jax

from dovetail.progress import COMPILED, WORTH_TELLING


@functools.cache
def give_back_after_compiling() -> None:
    """Return to the system what the compiler has freed, before what it has compiled runs.

    glibc keeps freed blocks for each of the compiler's threads, hundreds of MiB after a large program, and what is
    compiled allocates beside them. Other C libraries have no such call, and are left alone.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is None:
        return

    def heard(event: str, duration_secs: float, **_: Any) -> None:
        if event == COMPILED and duration_secs > WORTH_TELLING:
            trim(0)

    jax.monitoring.register_event_duration_secs_listener(heard)
