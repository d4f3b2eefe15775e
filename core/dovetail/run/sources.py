"""Pins names on a network, such as branches, for a run: their meanings are stored in its folder for resuming."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Final

import attrs

from dovetail.config.located import noted
from dovetail.errors import DataError, RunError
from dovetail.run.files import read_record, write_whole

SOURCES: Final = "sources.json"


@attrs.frozen
class _Kept:
    file: Path
    found: dict[str, str]
    writes: bool
    moved: dict[str, str]
    """The relative paths by which the run calls files, by where they are."""


_OPEN: ContextVar[_Kept | None] = ContextVar("sources", default=None)
_REFUSING: ContextVar[bool] = ContextVar("refusing", default=False)


@contextmanager
def kept_in(folder: Path, *, writes: bool = True) -> Iterator[None]:
    """Return a context in which names have the meanings stored in `folder`; with `writes`, new ones are stored.

    Raises:
        RunError: if the file of the meanings cannot be read, or holds anything but texts.
    """
    file = folder / SOURCES
    found = read_record(file) if file.exists() else {}
    if odd := [name for name, meaning in found.items() if not isinstance(meaning, str)]:
        raise RunError(f"'{file}' has no text for '{odd[0]}'; restore it, or choose another folder")
    token = _OPEN.set(
        _Kept(file, found, writes, {os.path.join(where, text): text for text, where in noted(folder).items()})
    )
    try:
        yield
    finally:
        _OPEN.reset(token)


@contextmanager
def nothing_looked_up() -> Iterator[None]:
    """Return a context in which names on a network have no meaning: who asks for it gets an error."""
    token = _REFUSING.set(True)
    try:
        yield
    finally:
        _REFUSING.reset(token)


def stands_for(name: str, look_up: Callable[[], str]) -> str:
    """Return the meaning of a name, such as the commit of a branch; process 0 looks it up once in a run.

    Raises:
        DataError: within `nothing_looked_up`.

    >>> stands_for("model acme/tiny@main", lambda: "0123abc")
    '0123abc'
    """
    if _REFUSING.get():
        raise DataError(f"{name} is on a network, which is not asked now")
    kept = _OPEN.get()
    if kept is None:
        return look_up()
    for place, text in kept.moved.items():
        name = name.replace(place, text)
    if name not in kept.found:
        kept.found[name] = look_up()
        if kept.writes:
            write_whole(kept.file, json.dumps(kept.found, indent=2) + "\n")
    return kept.found[name]
