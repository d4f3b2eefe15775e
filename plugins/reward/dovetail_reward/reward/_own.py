"""Load a function from a user's file, and read what it returns."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import inspect
import itertools
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from dovetail.errors import ConfigError, DovetailWarning, listing, nearest
from dovetail.registry.places import first_line
from dovetail.registry.undisturbed import undisturbed


def load_function(path: str, name: str) -> Callable[..., Any]:
    """Execute the file, only once, and return one of its functions.

    Raises:
        ConfigError: if there is no such file or function, or executing the file raises an exception.
    """
    return _loaded(Path(path).expanduser().resolve(), path, name)


@functools.cache
def _loaded(file: Path, path: str, name: str) -> Callable[..., Any]:
    module_name = f"_compute_score_{file.stem}"
    spec = importlib.util.spec_from_file_location(module_name, file)
    if not file.is_file() or spec is None or spec.loader is None:
        raise ConfigError(f"path = {path!r}: there is no Python file {file}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
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


@contextlib.contextmanager
def undone(label: str) -> Iterator[None]:
    """Undo what a function called in this context does to the working folder, streams and signal handlers.

    A warning names the function by its label and says what it did.
    """
    with undisturbed() as did:
        yield
    if did:
        warnings.warn(f"{label}: while it was called it {', '.join(did)} (undone)", DovetailWarning, stacklevel=3)


def numbers_of(returned: Any, count: int, who: str) -> list[float | None]:
    """Return what a function gave for a batch as one number for each completion, None where it abstains.

    Raises:
        TypeError: if it is not a list of numbers; a text is none, though Python would read it.
        ValueError: if it has another length, or never ends.
    """
    return [number_of(score, who) for score in as_many(returned, count, who)]


def as_many(returned: Any, count: int, who: str) -> list[Any]:
    """Return the list that a function gave, which must be as long as its batch; a generator may never end."""
    if isinstance(returned, str | bytes | Mapping | Set) or not isinstance(returned, Iterable):
        said = shown(returned)
        raise TypeError(f"{who} returned {said}; return a list with a number for each of the {count} completions")
    scores = list(itertools.islice(returned, count + 1))
    if len(scores) != count:
        many = f"more than {count}" if len(scores) > count else str(len(scores))
        raise ValueError(f"{who} returned {many} scores for {count} completions")
    return scores


def number_of(score: Any, who: str) -> float | None:
    """Return a score as a number, or None."""
    if isinstance(score, str | bytes):
        raise TypeError(f"{who} gave {shown(score)}; return a number, or None to abstain")
    if score is None:
        return None
    try:
        return float(score)
    except Exception as error:  # what an object of the user's does is anything
        raise TypeError(f"{who} gave {shown(score)}, which is not a number: {first_line(error)}") from error


def is_number(value: Any) -> bool:
    """Tell whether a value is a number or a truth value, of Python's or of NumPy's types.

    >>> is_number(True), is_number(np.float32(0.5)), is_number(np.bool_(True)), is_number("0.5")
    (True, True, True, False)
    """
    return isinstance(value, Real | np.bool_)


def shown(value: Any) -> str:
    """Return a value for a message, cut off where it is long."""
    text = repr(value)
    return f"{text[:60]}..." if len(text) > 60 else text
