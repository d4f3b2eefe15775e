"""What can become of a trial."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import attrs
from annotated_types import Interval

from dovetail_lab.recorded import LATEST

Status = Literal[
    "waiting", "running", "interrupted", "paused", "done", "failed", "timeout", "pruned", "killed", "corrupt"
]
FINAL: Final = frozenset({"done", "pruned", "killed"})
"""What running the command again does not change."""
SETTLED: Final = FINAL | {"failed", "timeout"}
"""What ends a trial for this time."""


@attrs.frozen(kw_only=True)
class State:
    """What became of a trial.

    `waiting`, `running`, `interrupted` (whoever ran it is gone), `paused` (until a sampler decides), `done`,
    `failed`, `timeout`, `pruned` (stopped early by rule), `killed` (by `sweep kill`), or
    `corrupt` (its folder cannot be read). `reason` is one line.
    """

    status: Status = "waiting"
    attempts: int = 0
    started: Annotated[float, Interval(ge=0, le=LATEST)] | None = None
    ended: Annotated[float, Interval(ge=0, le=LATEST)] | None = None
    reason: str = ""
    host: str = ""
    pid: int = 0
