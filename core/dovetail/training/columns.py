"""What reads columns of a run's task: rewards, process rewards, interaction, engine, roles of speakers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from dovetail.config import Config
from dovetail.config.settings import Train
from dovetail.errors import ConfigError, PlanError, listing, nearest
from dovetail.host.process_rewards import ENDS, ProcessScorer
from dovetail.host.rewards import ALWAYS, Scorer, check_columns
from dovetail.host.speakers import Speakers
from dovetail.protocols import Example, Task, Tokenizer
from dovetail.step.algorithm import part

READS: Final = "reads_examples"
"""The claim of an engine whose `generate` takes the examples of a step; its `columns` are those that it reads."""


def make_scorer(config: Config) -> Scorer:
    """Return the rewards and their manager; a reward that lacks a file or a library raises its error now."""
    scorer = Scorer(
        rewards=tuple(part("reward", choice) for choice in config.several("train.rewards")),
        manager=part("reward_manager", config.choice("train.reward_manager")),
        turns=bool(config.choice("train.agent_loop").component.declares.get("turns")),
    )
    scorer.check()
    return scorer


def make_process_scorer(config: Config, task: Task, tokenizer: Tokenizer) -> ProcessScorer | None:
    """Return the process rewards, if there are any; one that lacks a file or a library raises its error now."""
    parts = tuple(part("process_reward", choice) for choice in config.several("train.process_rewards"))
    if not parts:
        return None
    built = tuple(each.build() for each in parts)
    check_columns(parts, task.columns, config.choice("train.task").component.name, (*ALWAYS, ENDS), built)
    return ProcessScorer(rewards=parts, tokenizer=tokenizer)


def check_answers(config: Config, task: Task) -> None:
    """Refuse a task without the column of answers."""
    if config.train.answer_column not in task.columns:
        raise _no_column(config, task, "train.answer_column")


def _no_column(config: Config, task: Task, setting: str) -> ConfigError:
    column, name = config.setting(setting), config.choice("train.task").component.name
    return ConfigError(
        f"{setting} = '{column}' is not a column of task {name}.{nearest(column, task.columns)} Columns:"
        f" {listing(task.columns)}"
    )


def make_speakers(config: Config, task: Task, examples: Sequence[Example]) -> Speakers:
    """Return the roles in the task's column; a task without the column has one role, unless it has a name of its own.

    A run's config is written out with every default, so where the name comes from must not matter.
    """
    check_role_column(config, task)
    column = config.train.role_column
    return Speakers.of(examples, column) if column in task.columns else Speakers()


def check_role_column(config: Config, task: Task) -> None:
    """Refuse the name of a column of roles that the task does not have, except for the default."""
    if config.train.role_column not in (*task.columns, attrs.fields(Train).role_column.default):
        raise _no_column(config, task, "train.role_column")


def check_drawn(config: Config, task: Task) -> None:
    """Refuse an interaction or an engine that reads a column that the task does not have."""
    interaction, engine = config.choices.get("train.interaction"), config.choice("train.rollout")
    readers = [each for each in (interaction, engine if engine.declares.get(READS) else None) if each]
    for chosen, column in ((each, column) for each in readers for column in each.bind().columns):
        if column not in task.columns:
            raise PlanError(
                f"{chosen.component.label} of {chosen.component.origin} reads the column '{column}', which task"
                f" {config.choice('train.task').component.name} does not have.{nearest(column, task.columns)} Columns:"
                f" {listing(task.columns)}{chosen.component.place}"
            )
