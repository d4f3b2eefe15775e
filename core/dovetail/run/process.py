"""Prepares a process for runs."""

from __future__ import annotations

import os
from pathlib import Path

from dovetail.errors import RunError


def prepare() -> None:
    """Silence the start-up messages of libraries, and enable the persistent cache of compiled programs.

    Raises:
        RunError: if JAX is set to 64 bits.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import jax

    if jax.config.read("jax_enable_x64"):
        raise RunError("JAX_ENABLE_X64 is set, and runs compute in 32 bits; unset it")
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "dovetail" / "xla"
        jax.config.update("jax_compilation_cache_dir", str(cache))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
