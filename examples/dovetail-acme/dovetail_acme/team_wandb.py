"""Sink `team_wandb`: metrics to Weights & Biases."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import attrs
from dovetail.errors import ConfigError


@attrs.frozen(kw_only=True)
class Wandb:
    """Writes a run's metrics for Weights & Biases, by default to files alone: `wandb sync RUN/wandb/offline-run-*`.

    The run's id is made from its folder, so that a resumed run goes on in the same one. What it does again after a
    crash is not logged again: W&B takes no record back. Metrics of the warm start have steps of their own, and are
    drawn over `sft/step`.

    Args:
        project: as Weights & Biases groups runs.
        mode: `offline` writes files, `online` sends them too.

    Raises:
        ConfigError: when it is opened, if the library is missing.
    """

    project: str = "dovetail"
    mode: Literal["offline", "online"] = "offline"

    def open(self, folder: Path, total_steps: int, start_step: int) -> OpenWandb:
        """Return the sink."""
        try:
            import wandb
        except ImportError as error:
            raise ConfigError("sink.team_wandb needs Weights & Biases: pip install 'dovetail-acme[wandb]'") from error
        run = wandb.init(
            project=self.project,
            mode=self.mode,
            dir=folder,
            name=folder.name,
            id=hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:12],
            resume="allow" if self.mode == "online" else None,
            config={"total_steps": total_steps},
            settings=wandb.Settings(quiet=True, console="off"),
        )
        run.define_metric("sft/*", step_metric="sft/step")
        run.define_metric("*", step_metric="step")
        sent = folder / "team_wandb.json"
        return OpenWandb(run, sent, json.loads(sent.read_text()) if sent.exists() else {})


@attrs.frozen
class OpenWandb:
    """An open sink.

    Attributes:
        run: of Weights & Biases.
        sent: the file that keeps `last` when the process is killed.
        last: `step` or `sft/step` -> the last one that was logged.
    """

    run: Any
    sent: Path
    last: dict[str, int]

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Take one record."""
        phase = "sft/step" if any(name.startswith("sft/") for name in metrics) else "step"
        if step <= self.last.get(phase, -1):
            return
        self.run.log({phase: step, **metrics})
        self.last[phase] = step
        aside = self.sent.with_suffix(".tmp")
        aside.write_text(json.dumps(self.last))
        aside.replace(self.sent)  # a kill leaves the old note or the new one, never half of one

    def close(self) -> None:
        """Write what is left."""
        self.run.finish()
