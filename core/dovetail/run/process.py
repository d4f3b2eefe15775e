"""Prepares a process for runs."""

from __future__ import annotations

import os
from pathlib import Path


def prepare() -> None:
    """Silence the start-up messages of libraries, and enable the persistent cache of compiled programs."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import jax

    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "dovetail" / "xla"
        jax.config.update("jax_compilation_cache_dir", str(cache))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
