"""Errors of libraries that come once nobody waits for what they are about."""

from __future__ import annotations

import functools
import logging
import sys
import threading
from typing import Any, Final

LATER: Final = ("Event loop is closed", "cannot schedule new futures after interpreter shutdown")
"""What fails once nobody waits for it any more."""
LOGGED: Final = {
    "absl": "_SignalingThread.run() raised an exception",
    "asyncio": "exception was never retrieved",
}
"""What is logged, by logger, of an error that is raised as well."""


@functools.cache
def hush_later_errors() -> None:
    """Print no tracebacks of what nobody awaits any more.

    When an array cannot be read or written, tensorstore prints one for every other array, and the threads of orbax
    print theirs, some as the interpreter ends. What has gone wrong is raised as well.
    """
    print_it, print_unraisable, print_of_thread = sys.excepthook, sys.unraisablehook, threading.excepthook

    def is_later(kind: type[BaseException] | None, error: BaseException | None) -> bool:
        return kind is RuntimeError and str(error) in LATER

    def hook(kind: type[BaseException], error: BaseException, where: Any) -> None:
        if not is_later(kind, error):
            print_it(kind, error, where)

    def unraisable(found: Any) -> None:
        if not is_later(found.exc_type, found.exc_value):
            print_unraisable(found)

    def of_thread(found: Any) -> None:
        if not is_later(found.exc_type, found.exc_value):
            print_of_thread(found)

    sys.excepthook, sys.unraisablehook, threading.excepthook = hook, unraisable, of_thread
    for name, said in LOGGED.items():
        logging.getLogger(name).addFilter(lambda record, said=said: said not in record.getMessage())
