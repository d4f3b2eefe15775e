"""Imports Ray and joins its cluster, for all that may run there: trials, replicas, rewards and tools."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

from dovetail.errors import ConfigError
from dovetail.extras import needs


def import_ray(who: str) -> ModuleType:
    """Return the module `ray`.

    Raises:
        ConfigError: if it is not installed; the message says who needs it.
    """
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise ConfigError(needs(who, "Ray", "ray") + f" ({error})") from error


def join(ray: Any, address: str | None, setting: str) -> bool:
    """Join the cluster at an address, or start one; return whether that was necessary.

    Raises:
        ConfigError: if there is no cluster; the message names the setting.
    """
    if ray.is_initialized():
        return False
    try:
        ray.init(address=address or "local", include_dashboard=None, log_to_driver=False, logging_level="error")
    except (ConnectionError, ValueError, RuntimeError) as error:
        message = " ".join(str(error).split())
        raise ConfigError(f"{setting} = {address!r}: no Ray cluster there: {message}") from error
    return True
