"""Dovetail's built-in sinks: they show metrics beside the `metrics.jsonl` that every run writes, and its overview."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from dovetail.hookspecs import hookimpl


@hookimpl
def dovetail_components(register: Callable[..., None]) -> None:
    """Register the components of this package."""
    register("sink", "console", "dovetail_sink.sink.console:Console")
    register("sink", "curve", "dovetail_sink.sink.curve:Curve")
    register("sink", "tensorboard", "dovetail_sink.sink.tensorboard:TensorBoard")
    register("sink", "mlflow", "dovetail_sink.sink.mlflow:MLflow")
    register("sink", "trackio", "dovetail_sink.sink.trackio:Trackio")
    register("sink", "wandb", "dovetail_sink.sink.wandb:WandB")


@hookimpl
def dovetail_run_start(folder: Path, setup: Any) -> None:
    """Show what has been set up."""
    from dovetail_sink._overview import show

    show(setup, folder)
