"""Metrics in Weights & Biases."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import attrs

from dovetail_sink._tracked import Once, Tracked, import_tracker, named


@attrs.frozen(kw_only=True)
class WandB:
    """Logs to a run of Weights & Biases, with the config; the runs of a sweep are a group. Needs the extra `wandb`.

    Curves are drawn over `step`, those of the warm start over `sft/step`. A resumed run continues the same run, and
    what it does again after a crash is not logged again.

    Args:
        mode: `offline` writes `wandb/` in the run's folder, for `wandb sync RUN/wandb/offline-run-*`; `online` needs
            `wandb login`.
        project: the name of the W&B project.
        entity: the user or team that owns the project; None means your default.
    """

    mode: Literal["offline", "online"] = "offline"
    project: str = "dovetail"
    entity: str | None = None

    def open(self, folder: Path, total_steps: int, start_step: int) -> Once:
        """Begin or continue the run.

        Raises:
            ConfigError: if wandb is not installed.
        """
        wandb = import_tracker("wandb", "wandb", "wandb")
        about = Tracked.of(folder)
        run = wandb.init(
            project=self.project,
            entity=self.entity,
            dir=str(folder),
            id=about.key,
            name=about.name,
            group=about.group,
            config=dict(about.settings),
            mode=self.mode,
            resume="allow" if self.mode == "online" else None,
            reinit="create_new",  # the members of a population have one each
            settings=wandb.Settings(silent=True, console="off"),
        )
        run.define_metric("*", step_metric="step")
        run.define_metric("sft/*", step_metric="sft/step")
        return Once.over(WandBRun(run), "wandb", folder, about.key)


@attrs.frozen
class WandBRun:
    """An open run of Weights & Biases."""

    run: Any

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Take one step's metrics."""
        is_sft, found = named(metrics)
        self.run.log({"sft/step" if is_sft else "step": step, **found})

    def close(self) -> None:
        """Send, or write, what is left."""
        self.run.finish()
