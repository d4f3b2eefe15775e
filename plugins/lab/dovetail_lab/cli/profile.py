"""`dovetail train --profile`: a trace of some steps, for Perfetto (ui.perfetto.dev) and TensorBoard."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from dovetail.cli.train import Training
from dovetail.errors import ConfigError
from dovetail.hookspecs import hookimpl
from dovetail.registry import plugin_manager

if TYPE_CHECKING:
    from dovetail.config import Config

FOLDER = "profile"
"""The subfolder of a run's folder with traces."""


def add(training: Training) -> None:
    """Add the option to `dovetail train`."""
    if training.name == "train":
        training.parser.add_argument(
            "--profile",
            metavar="steps=FIRST:LAST",
            help="trace these RL steps, counted from 1, into FOLDER/profile for Perfetto and TensorBoard",
        )
        training.around.append(traced)


@contextmanager
def traced(options: argparse.Namespace, config: Config, folder: Path) -> Iterator[None]:
    """Trace the steps that the options name, and say where the trace is."""
    if options.profile is None:
        yield
        return
    window = Window.parse(options.profile)
    window.check(config.train.steps)
    with profiled(window, folder) as profiler:
        yield
    if profiler.has_traced:
        print(
            f"profile      {profiler.folder}: open the .trace.json.gz in ui.perfetto.dev, or the folder in TensorBoard"
        )


@contextmanager
def profiled(window: Window, folder: Path) -> Iterator[Profiler]:
    """Trace the steps of a window in the runs of this context, into a subfolder of `folder`."""
    profiler, manager = Profiler(window, folder / FOLDER), plugin_manager()
    manager.register(profiler)
    try:
        yield profiler
    finally:
        manager.unregister(profiler)
        profiler.stop()


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
            raise ConfigError(f"--profile {text} is not a window of steps; write --profile steps=5:7, counted from 1")
        return window

    def check(self, steps: int) -> None:
        """Refuse a window without steps of a run with `steps` steps.

        Raises:
            ConfigError: if the run ends before the window begins.
        """
        if self.first > steps:
            raise ConfigError(f"--profile steps={self.first}:{self.last} begins after train.steps = {steps}")


@attrs.define(eq=False)
class Profiler:
    """An observer that traces the steps of a window."""

    window: Window
    folder: Path
    has_traced: bool = False
    _tracing: ExitStack = attrs.field(factory=ExitStack, init=False)
    _step: ExitStack = attrs.field(factory=ExitStack, init=False)

    @hookimpl
    def dovetail_step_begin(self, step: int) -> None:
        """Begin the trace with the first step of the window, and mark each step in it."""
        if not self.window.first <= step <= self.window.last:
            return
        import jax

        if not self.has_traced:
            self._tracing.enter_context(jax.profiler.trace(str(self.folder)))
            self.has_traced = True
        self._step.enter_context(jax.profiler.StepTraceAnnotation("step", step_num=step))

    @hookimpl
    def dovetail_step_end(self, step: int) -> None:
        """End the trace with the last step of the window."""
        self._step.close()
        if step >= self.window.last:
            self.stop()

    def stop(self) -> None:
        """End the trace, if there is one."""
        self._step.close()
        self._tracing.close()
