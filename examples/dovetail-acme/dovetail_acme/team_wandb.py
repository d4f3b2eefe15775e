"""Sink `team_wandb`: metrics to Weights & Biases."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import attrs
from dovetail.errors import ConfigError


@attrs.frozen(kw_only=True)
class Wandb:
    """Writes a run's metrics for Weights & Biases, by default to files alone: `wandb sync RUN/wandb/offline-run-*`.

    The run's id is made from its folder, so that a resumed run goes on in the same one. Metrics of the warm start have
    steps of their own, and are drawn over `sft/step`.

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
        return OpenWandb(run)


@attrs.frozen
class OpenWandb:
    """An open sink."""

    run: Any

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Take one record."""
        phase = "sft/step" if any(name.startswith("sft/") for name in metrics) else "step"
        self.run.log({phase: step, **metrics})

    def close(self) -> None:
        """Write what is left."""
        self.run.finish()
