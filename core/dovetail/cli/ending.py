"""The end of the process, which a thread that a plugin has left behind would hold up forever."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import traceback
from typing import Final

from dovetail.errors import printable

SOON: Final = 5.0
"""The seconds after which threads that are still running are named."""
LATE: Final = 60.0
"""The seconds after which the process ends without them."""


def end_without_threads(status: int) -> None:
    """Let the process, whose work is done and saved, end with `status` even if threads that are not daemons continue.

    Python waits for such threads without a word. A reward that has started one would keep a job on its accelerator.
    """
    threading.Thread(target=_watch, args=(status,), daemon=True, name="ending").start()


def _watch(status: int) -> None:
    time.sleep(SOON)
    if not (left := _left()):  # something else takes its time, such as what runs at exit
        return
    print(
        f"warning: everything is done, but threads still run: {', '.join(map(_shown, left))}; waiting for"
        f" {LATE - SOON:g} s at most",
        file=sys.stderr,
        flush=True,
    )
    time.sleep(LATE - SOON)
    if _left():
        try:
            atexit._run_exitfuncs()  # they close what was opened: servers, worker processes
        finally:
            os._exit(status)


def _left() -> list[threading.Thread]:
    main = threading.main_thread()
    return [thread for thread in threading.enumerate() if thread is not main and not thread.daemon]


def _shown(thread: threading.Thread) -> str:
    """Return a thread's name, and where the function that it was started with stands at the moment.

    The frames before it are those of `threading`.
    """
    frame = sys._current_frames().get(thread.ident or 0)
    own = [each for each in traceback.extract_stack(frame) if each.filename != threading.__file__] if frame else []
    return printable(f"{thread.name} [{own[0].filename}:{own[0].lineno}]" if own else thread.name)
