"""Time limits that only what hangs can exceed, however long the machine stands still."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from dovetail_kit.workers import Process

LONG = 600.0
"""Seconds for what ends by itself."""


def limit_only(monkeypatch: pytest.MonkeyPatch, *texts: str) -> None:
    """Keep the time limit of those calls of workers whose arguments contain one of these texts; others get `LONG`."""
    call = Process.call

    def limited(process: Process, time_limit: float, arguments: Sequence[Any]) -> Any:
        said = repr(arguments)
        return call(process, time_limit if any(text in said for text in texts) else LONG, arguments)

    monkeypatch.setattr(Process, "call", limited)
