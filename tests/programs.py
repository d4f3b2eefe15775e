"""Compiled programs that the processes of one test share: the first one compiles them, the others read them."""

from __future__ import annotations

from pathlib import Path


def shared(folder: Path) -> dict[str, str]:
    """Return the variables of processes that keep their programs in a folder, although the suite itself keeps none."""
    return {
        "JAX_ENABLE_COMPILATION_CACHE": "true",
        "JAX_COMPILATION_CACHE_DIR": str(folder),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
