"""What names on a network stood for when a run began: kept in its folder, so that it goes on with the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Final

import attrs

from dovetail.run.files import write_whole

SOURCES: Final = "sources.json"


@attrs.frozen
class _Kept:
    file: Path
    found: dict[str, str]
    writes: bool


_OPEN: ContextVar[_Kept | None] = ContextVar("sources", default=None)


@contextmanager
def kept_in(folder: Path, *, writes: bool = True) -> Iterator[None]:
    """Let names stand for what they stood for when the run in `folder` began; new ones are noted if it `writes`."""
    file = folder / SOURCES
    found = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    token = _OPEN.set(_Kept(file, found, writes))
    try:
        yield
    finally:
        _OPEN.reset(token)


def stands_for(name: str, look_up: Callable[[], str]) -> str:
    """Return what a name stands for: a branch's commit, say. It is looked up once in a run, by its first process.

    >>> stands_for("model acme/tiny@main", lambda: "0123abc")
    '0123abc'
    """
    kept = _OPEN.get()
    if kept is None:
        return look_up()
    if name not in kept.found:
        kept.found[name] = look_up()
        if kept.writes:
            write_whole(kept.file, json.dumps(kept.found, indent=2) + "\n")
    return kept.found[name]
