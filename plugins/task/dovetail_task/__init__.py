"""Dovetail's built-in tasks, where prompts, columns for rewards and demonstrations come from, and curricula."""

from __future__ import annotations

from collections.abc import Callable

from dovetail.hookspecs import hookimpl


@hookimpl
def dovetail_components(register: Callable[..., None]) -> None:
    """Register the components of this package."""
    register("curriculum", "difficulty", "dovetail_task.curriculum.difficulty:Difficulty")
    register("task", "arithmetic", "dovetail_task.task.arithmetic:Arithmetic")
    register("task", "gsm8k", "dovetail_task.task.gsm8k:Gsm8k")
    # The format follows the file's suffix, so that the other names only say what a config expects to read.
    register("task", "records", "dovetail_task.task.records:Records", aliases=("jsonl", "csv", "parquet"))
