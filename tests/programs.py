"""Compiled programs that processes of tests share: the first one compiles them, the others read them."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from pathlib import Path

KEPT = Path(tempfile.mkdtemp(prefix="dovetail-programs-"))
"""What all tests of this process share. Tests that kill what may be writing to it have folders of their own."""

atexit.register(shutil.rmtree, KEPT, ignore_errors=True)


def shared(folder: Path = KEPT) -> dict[str, str]:
    """Return the variables of processes that keep their programs in a folder, although the suite itself keeps none.

    A new folder begins with what the tests before have compiled.
    """
    if not folder.exists():
        shutil.copytree(KEPT, folder)
    return {
        "JAX_ENABLE_COMPILATION_CACHE": "true",
        "JAX_COMPILATION_CACHE_DIR": str(folder),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
