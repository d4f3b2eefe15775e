"""Whether a task has the columns that a config reads, as far as it is known before anything is trained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dovetail.config import Choice, Config
from dovetail.host.rewards import ALWAYS, OF_EPISODES, check_columns
from dovetail.protocols import Task
from dovetail.run.sources import nothing_looked_up
from dovetail.step.algorithm import part
from dovetail.training.columns import check_drawn, check_role_column

CHECKS: Final = ("success", "partial", "format")
"""The settings of `eval` that name a reward."""


def check_known_columns(config: Config, tasks: dict[str, Task] | None = None) -> None:
    """Refuse what reads columns that a task does not have, as far as that is known without building rewards.

    Nothing is said of a task whose columns cannot be known here, because its data is on another machine or a network.

    Args:
        config: what would be trained.
        tasks: keeps the tasks of many configs, so that each is opened once.

    Raises:
        PlanError: as at the start of a run.
    """
    opened: dict[str, Task] = {} if tasks is None else tasks
    scored = config.several("train.rewards")
    checks = [choice for role in CHECKS if (choice := config.choices.get(f"eval.{role}"))]
    _check_known("train.task", (*scored, *config.several("train.process_rewards")), config, opened)
    if config.eval.every is not None:
        _check_known("eval.task", (*scored, *checks), config, opened)


def _check_known(slot: str, readers: Sequence[Choice], config: Config, tasks: dict[str, Task]) -> None:
    choice = config.choice(slot)
    key = f"{choice.component.qualified_name} {sorted(choice.params.items())}"
    try:
        with nothing_looked_up():
            if key not in tasks:
                tasks[key] = choice.bind()
            task = tasks[key]
            columns = task.columns
    except Exception:  # a task of anybody, which says what is wrong when it is trained on
        return
    always = (*ALWAYS, *OF_EPISODES)  # ENDS among them
    check_columns([part(each.component.kind, each) for each in readers], columns, choice.component.name, always)
    if slot == "train.task":
        check_drawn(config, task)
        if config.plan and "role_ids" in config.plan:
            check_role_column(config, task)
