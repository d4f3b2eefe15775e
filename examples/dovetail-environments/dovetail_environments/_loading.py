"""Classes of users, named in a config, and asynchronous methods of theirs."""

from __future__ import annotations

import asyncio
import atexit
import functools
import importlib.util
import inspect
import pkgutil
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dovetail.errors import ConfigError


@functools.cache
def load(setting: str, where: str) -> Any:
    """Return what `module:Name` or `file.py:Name` stands for.

    Args:
        setting: its key, for the message.
        where: the module, or the path of a file, and the name in it.

    Raises:
        ConfigError: if it is not there.
    """
    place, _, name = where.rpartition(":")
    try:
        module = _file(Path(place).expanduser().resolve()) if place.endswith(".py") else pkgutil.resolve_name(place)
        return functools.reduce(getattr, name.split("."), module)
    except (ImportError, AttributeError, ValueError, OSError) as error:
        raise ConfigError(
            f"{setting} = '{where}' cannot be loaded: {error}; write 'module:Name' or 'file.py:Name'"
        ) from error


def _file(path: Path) -> Any:
    name = f"_dovetail_environments_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def finished(value: Any) -> Any:
    """Return the value of a coroutine, which runs in the one event loop of all of them; other values are returned."""
    if not inspect.isawaitable(value):
        return value
    return asyncio.run_coroutine_threadsafe(_awaited(value), _loop()).result()


async def _awaited(value: Any) -> Any:
    return await value


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    atexit.register(_end, loop)
    return loop


def _end(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel what still waits, so that nothing complains when the program ends."""

    async def cancel() -> None:
        waiting = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    asyncio.run_coroutine_threadsafe(cancel(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)


def columns_of(function: Any) -> tuple[str, ...]:
    """Return the names of the parameters that have to be given."""
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    given = inspect.signature(function).parameters.values()
    return tuple(each.name for each in given if each.kind in kinds and each.default is inspect.Parameter.empty)


def taken(function: Any, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return those columns of a row that a function takes: all of them if it takes any."""
    given = inspect.signature(function).parameters
    anything = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in given.values())
    return {name: value for name, value in row.items() if anything or name in given}
