"""Prepares a process for runs."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

from dovetail.errors import DovetailWarning, RunError

CACHE = "JAX_COMPILATION_CACHE_DIR"


def prepare() -> None:
    """Silence the start-up messages of libraries, and enable the persistent cache of compiled programs.

    Raises:
        RunError: if JAX is set to 64 bits.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import jax

    if jax.config.read("jax_enable_x64"):
        raise RunError("JAX_ENABLE_X64 is set, and runs compute in 32 bits; unset it")
    _keep_programs(jax)


def cache_folder() -> str:
    """Return where compiled programs are kept, a folder or an address; empty where there is no place for them.

    An empty or relative `XDG_CACHE_HOME` counts as not set, as its specification has it: otherwise each working folder
    would get a cache.
    """
    if CACHE in os.environ:
        return os.environ[CACHE]
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        home = named if named.is_absolute() else Path.home() / ".cache"
    except RuntimeError:  # neither HOME nor an account
        return ""
    return str(home / "dovetail" / "xla")


def refusal(folder: str) -> str:
    """Return why a folder cannot hold the cache; empty if it can, and for an address."""
    if not folder or "://" in folder:
        return ""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        return getattr(error, "strerror", None) or str(error)
    return "" if os.access(folder, os.W_OK | os.X_OK) else "Permission denied"


def _keep_programs(jax: Any) -> None:
    """Have JAX keep compiled programs; without a warning of ours, it has one of two lines for each of them."""
    folder = cache_folder()
    if why := refusal(folder):
        said = f"compiled programs are not kept: folder '{folder}' cannot be written: {why}; set {CACHE} to another"
        warnings.warn(said, DovetailWarning, stacklevel=3)
        folder = ""
    jax.config.update("jax_compilation_cache_dir", folder or None)
    if CACHE not in os.environ:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
