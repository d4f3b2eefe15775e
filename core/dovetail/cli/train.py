"""`dovetail train` and `dovetail sft`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from dovetail.cli.configs import print_notices
from dovetail.config import load
from dovetail.shipped import find


def train_command(config: str | None, overrides: Sequence[str], folder: Path | None, *, only_sft: bool) -> int:
    """Load a config, run it in its folder, print where the results are."""
    path = find(config)
    loaded = load(path, overrides)
    _quiet()
    print_notices(loaded)
    from dovetail.run.folder import default_folder
    from dovetail.run.summary import summarise
    from dovetail.train.loop import train

    chosen = folder or (Path(loaded.run.folder) if loaded.run.folder else None)
    where = chosen or default_folder(loaded, path.stem)
    train(loaded, where, only_sft=only_sft)
    print(summarise(where))
    return 0


def _quiet() -> None:
    """Keep the libraries' start-up messages away, and compiled programs for the next run."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import jax

    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "dovetail" / "xla"
        jax.config.update("jax_compilation_cache_dir", str(cache))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
