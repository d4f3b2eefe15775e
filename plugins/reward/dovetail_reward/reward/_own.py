"""Load a function from a user's file."""

from __future__ import annotations

import functools
import importlib.util
import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dovetail.errors import ConfigError, listing, nearest


@functools.cache
def load_function(path: str, name: str) -> Callable[..., Any]:
    """Execute the file, only once, and return one of its functions.

    Raises:
        ConfigError: if there is no such file or function, or executing the file raises an exception.
    """
    file = Path(path).expanduser().resolve()
    module_name = f"_compute_score_{file.stem}"
    spec = importlib.util.spec_from_file_location(module_name, file)
    if not file.is_file() or spec is None or spec.loader is None:
        raise ConfigError(f"path = {path!r}: there is no Python file {file}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[module_name]
        raise ConfigError(f"{path} cannot be run: {type(error).__name__}: {error}") from error
    function = getattr(module, name, None)
    if not callable(function):
        found = [key for key, value in vars(module).items() if inspect.isfunction(value)]
        raise ConfigError(f"{path} has no function '{name}'.{nearest(name, found)} Functions: {listing(found)}")
    return function


def check_arguments(function: Callable[..., Any], label: str, names: Sequence[str]) -> None:
    """Refuse a function that cannot be called with these names."""
    signature = inspect.signature(function)
    try:
        signature.bind(**dict.fromkeys(names))
    except TypeError as error:
        raise ConfigError(f"{label}{signature} is called with {', '.join(names)}: {error}") from error
