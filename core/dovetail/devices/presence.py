"""The devices that JAX has."""

from __future__ import annotations

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
    except RuntimeError as error:
        raise RunError(
            f"JAX cannot start a platform: {' '.join(str(error).split())}; `dovetail doctor` says what is there"
        ) from error
