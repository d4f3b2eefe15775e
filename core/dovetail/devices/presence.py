"""The devices that JAX has."""

from __future__ import annotations

import os
from typing import Any

from dovetail.errors import RunError


def devices() -> list[Any]:
    """Return JAX's devices.

    Raises:
        RunError: if the requested platform cannot be started.
    """
    import jax

    try:
        return jax.devices()
    except (RuntimeError, AssertionError) as error:  # AssertionError: of all the platforms asked for, JAX has none
        said = " ".join(str(error).split()) or f"JAX_PLATFORMS={os.environ.get('JAX_PLATFORMS', '')} names none it has"
        raise RunError(f"JAX cannot start a platform: {said}; `dovetail doctor` says what is there") from error
