"""Runs that are cut off in between, as by a power failure, and go on later."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from dovetail.run.journal import Journal


class CutOffError(Exception):
    pass


@contextlib.contextmanager
def cut_off(step: int, phase: str = "rl") -> Iterator[None]:
    """Within this context a run ends at once when it has recorded the step, without a word to anybody."""
    write = Journal.metrics

    def stop(self: Journal, of: str, number: int, values: Any) -> None:
        write(self, of, number, values)
        if (of, number) == (phase, step):
            raise CutOffError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Journal, "metrics", stop)
        with pytest.raises(CutOffError):
            yield
