"""Imports Ray and joins its cluster, for all that may run there: trials, replicas, rewards and tools."""

from __future__ import annotations

import importlib
import socket
from types import ModuleType
from typing import Any, Final

from dovetail.errors import ConfigError
from dovetail.extras import needs

ANSWER_SECONDS: Final = 10.0
"""How long a cluster may take to accept a connection."""


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
    if address is not None and ":" in address:
        _look(address, setting)
    try:
        ray.init(address=address or "local", include_dashboard=None, log_to_driver=False, logging_level="error")
    except (ConnectionError, ValueError, RuntimeError) as error:
        message = " ".join(str(error).split())
        if "Authentication" in f"{error}{error.__cause__}":
            message += "; it wants a token: set RAY_AUTH_MODE=token, and have the head's ~/.ray/auth_token here"
        raise ConfigError(f"{setting} = {address!r}: no Ray cluster there: {message}") from error
    return True


def _look(address: str, setting: str) -> None:
    """Refuse an address where nobody listens; Ray itself would try again for several minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection((host, int(port)), ANSWER_SECONDS).close()
    except (OSError, ValueError, OverflowError) as error:
        raise ConfigError(f"{setting} = {address!r}: no Ray cluster there: {error}") from error
