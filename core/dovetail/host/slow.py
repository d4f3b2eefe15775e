"""Says which reward a run waits for, since one that never returns would otherwise be silence."""

from __future__ import annotations

import sys
import sysconfig
import threading
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from dovetail.errors import DovetailWarning
from dovetail.step.parts import Part

SLOW_SECONDS: Final = 60.0
"""After these seconds of one call, the user is told of it, once for each reward."""

_LIBRARIES: Final = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
_TOLD: set[str] = set()


@contextmanager
def told_if_slow(part: Part) -> Iterator[None]:
    """Warn if what is done in this context takes long; a reward in a pool has a time limit of its own."""
    label = part.component.label
    if part.statics.get("pool") is not None or label in _TOLD:
        yield
        return
    timer = threading.Timer(SLOW_SECONDS, _tell, (part, threading.get_ident(), SLOW_SECONDS))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _tell(part: Part, thread: int, seconds: float) -> None:
    component = part.component
    _TOLD.add(component.label)
    files = [part.statics[name] for name in component.declares.get("programs", ()) if part.statics.get(name)]
    said = f"{component.kind} {component.name}{f' of {str(files[0])!r}' if files else ''}"
    advice = f"; in a pool of workers ({component.label}.pool) its calls have a time limit"
    warnings.warn(
        f"{said} has not returned for {seconds:g} s, and nothing ends it{_at(thread)}"
        f"{advice if 'pool' in component.common else ''}",
        DovetailWarning,
        stacklevel=1,
    )


def _at(thread: int) -> str:
    """Return the line at which a thread is, the innermost that is not a library's."""
    frames = traceback.extract_stack(sys._current_frames().get(thread))
    own = [frame for frame in frames if not frame.filename.startswith(_LIBRARIES)]
    return f" [{own[-1].filename}:{own[-1].lineno}]" if own else ""
