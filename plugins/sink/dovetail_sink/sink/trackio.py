"""Metrics in Trackio."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

import dovetail
from dovetail_sink._tracked import Once, Tracked, import_tracker, named


@dovetail.declares(elsewhere=True)
@attrs.frozen(kw_only=True)
class Trackio:
    """Logs to a run of Trackio, with the config; the runs of a sweep are a group. Needs the extra `trackio`.

    The data are stored on this machine in `TRACKIO_DIR` (by default in the cache of Hugging Face); `trackio show`
    displays them. A resumed run continues the same run of Trackio, and what it does again after a crash is not logged
    again. The steps of the warm start are in `sft/step`.

    Args:
        project: the name of the Trackio project.
        space: a Hugging Face Space to send the data to, as `user/name`; None keeps them on this machine.
    """

    project: str = "dovetail"
    space: str | None = None

    def open(self, folder: Path, total_steps: int, start_step: int) -> Once:
        """Begin or continue the run.

        Raises:
            ConfigError: if trackio is not installed.
        """
        trackio = import_tracker("trackio", "trackio", "Trackio")
        about = Tracked.of(folder)
        with contextlib.redirect_stdout(sys.stderr):  # trackio prints instructions, and stdout is for records
            run = trackio.init(
                project=self.project,
                name=f"{about.name}-{about.key[-8:]}",
                group=about.group,
                config=dict(about.settings),
                space_id=self.space,
                resume="allow",
                embed=False,
                auto_log_cpu=False,
                auto_log_gpu=False,
            )
        return Once.over(TrackioRun(trackio, run), "trackio", folder, about.key)


@attrs.frozen
class TrackioRun:
    """An open run of Trackio."""

    trackio: Any
    run: Any

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Take one step's metrics."""
        is_sft, found = named(metrics)
        self.run.log({**found, "sft/step": step} if is_sft else found, step=None if is_sft else step)

    def close(self) -> None:
        """Write pending metrics."""
        with contextlib.redirect_stdout(sys.stderr):
            if self.trackio.context_vars.current_run.get() is self.run:
                self.trackio.finish()  # and forget it, or it is finished again, and says so, when the process ends
            else:
                self.run.finish()
