"""Dovetail's built-in tasks, with prompts, columns that rewards read, and demonstrations; and curricula over them."""

from __future__ import annotations

from collections.abc import Callable

from dovetail.hookspecs import hookimpl


@hookimpl
def dovetail_components(register: Callable[..., None]) -> None:
    """Register the components of this package."""
    register("curriculum", "difficulty", "dovetail_task.curriculum.difficulty:Difficulty")
    register("task", "arithmetic", "dovetail_task.task.arithmetic:Arithmetic")
    register("task", "dataset", "dovetail_task.task.dataset:Dataset")
    register("task", "gsm8k", "dovetail_task.task.gsm8k:Gsm8k")
    # The format follows from the file's suffix; the aliases only say in a config what is read.
    register("task", "records", "dovetail_task.task.records:Records", aliases=("jsonl", "csv", "parquet"))
