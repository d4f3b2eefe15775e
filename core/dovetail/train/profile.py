"""A trace of some steps of a run, for Perfetto (ui.perfetto.dev) and TensorBoard's profile plugin."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import attrs

from dovetail.errors import ConfigError

FOLDER = "profile"
"""The subfolder of a run's folder with traces."""


@attrs.frozen
class Window:
    """The RL steps to trace, from `first` to `last` inclusive, counted from 1 as in the records.

    The first step of a process compiles; choose later steps to see the usual costs.
    """

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> Window:
        """Read `steps=5:7`, or `steps=5` for one step.

        Raises:
            ConfigError: if the text has another form.

        >>> Window.parse("steps=5:7")
        Window(first=5, last=7)
        """
        found = re.fullmatch(r"steps=(\d+)(?::(\d+))?", text)
        window = cls(int(found[1]), int(found[2] or found[1])) if found else cls(0, 0)
        if not 1 <= window.first <= window.last:
            raise ConfigError(f"--profile {text} is no window of steps; write --profile steps=5:7, counted from 1")
        return window

    def check(self, steps: int) -> None:
        """Refuse a window without steps of a run with `steps` steps.

        Raises:
            ConfigError: if the run ends before the window begins.
        """
        if self.first > steps:
            raise ConfigError(f"--profile steps={self.first}:{self.last} begins after train.steps = {steps}")


@attrs.define
class Profiler(AbstractContextManager["Profiler"]):
    """Traces the steps of a window; without a window it does nothing."""

    window: Window | None
    folder: Path
    _tracing: bool = attrs.field(default=False, init=False)

    def step(self, number: int) -> AbstractContextManager[Any]:
        """Return the context in which a step runs; the trace begins and ends with the window."""
        import jax

        inside = self.window is not None and self.window.first <= number <= self.window.last
        if not inside:
            self._stop()
            return nullcontext()
        if not self._tracing:
            jax.profiler.start_trace(str(self.folder / FOLDER))
            self._tracing = True
        return jax.profiler.StepTraceAnnotation("step", step_num=number)

    def _stop(self) -> None:
        if self._tracing:
            import jax

            self._tracing = False
            jax.profiler.stop_trace()

    def __exit__(self, *_: object) -> None:
        self._stop()
