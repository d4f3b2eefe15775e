"""Builds the pieces of a run from its config: task, tokenizer, model, rewards, engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs

from dovetail.config import Choice, Config
from dovetail.config.resolved import DEFAULT
from dovetail.devices import processes
from dovetail.devices.footprint import Settled, in_mode
from dovetail.devices.hand_over import HandOver
from dovetail.devices.memory import settle
from dovetail.devices.mesh import Devices
from dovetail.devices.population import CURRENT, make_model
from dovetail.errors import ConfigError, PlanError, listing, nearest
from dovetail.evaluation.checks import Check, make_answers, make_checks
from dovetail.evaluation.evaluate import Evaluator
from dovetail.host.placed import PlacedEngine
from dovetail.host.process_rewards import ENDS, ProcessScorer
from dovetail.host.prompts import Checked, LengthReport, Limit, Rendered, Selected, fit
from dovetail.host.rewards import ALWAYS, Scorer, check_columns
from dovetail.host.sampling import Sampler
from dovetail.host.speakers import Speakers
from dovetail.plan.roles import POLICY, ROLLOUT
from dovetail.protocols import AgentLoop, Example, OpenLoop, RolloutEngine, Split, Task, Tokenizer, Tool, Weights
from dovetail.step.algorithm import Algorithm, assemble, check_roles, part
from dovetail.train.models import Models

TOKENIZER = "tokenizer"


@attrs.frozen(kw_only=True)
class Setup:
    """The pieces of a run, before anything is trained.

    `checks` are the checks of completions in evaluations. `reports` has the numbers of prompts that exceed the limit;
    the examples are those that are used.
    """

    config: Config
    algorithm: Algorithm
    task: Task
    eval_task: Task
    tokenizer: Tokenizer
    scorer: Scorer
    process_scorer: ProcessScorer | None
    checks: tuple[Check, ...]
    train_examples: Sequence[Example]
    eval_examples: Sequence[Example]
    reports: tuple[LengthReport, ...]
    loop: OpenLoop | None
    speakers: Speakers
    devices: Devices
    hand_over: HandOver
    models: Models
    settled: Settled
    graphdef: Any
    weights: Weights

    def render(self, example: Example) -> str:
        """Return the text that the model reads for an example's prompt."""
        return renderer(self.tokenizer, self.loop)(example)

    def engine(self, weights: Weights) -> RolloutEngine:
        """Open the rollout engine with these weights, which are already on its devices."""
        devices = self.devices.of(ROLLOUT)
        with devices.use():
            opened = _build(self.config.choice("train.rollout")).open(self.graphdef, weights, self.tokenizer)
        return opened if devices is self.devices else PlacedEngine(opened, devices)

    def evaluator(self, sampler: Sampler) -> Evaluator:
        """Return the evaluation of the task's `eval` split."""
        return Evaluator(
            sampler=sampler,
            examples=self.eval_examples,
            checks=self.checks,
            answers=make_answers(self.config),
            settings=self.config.eval,
            sampling=self.config.sampling,
            seed=self.config.run.seed,
        )


def set_up(
    config: Config,
    folder: Path,
    *,
    only_sft: bool = False,
    samples: bool = True,
    before_loading: Callable[[], None] = lambda: None,
) -> Setup:
    """Build everything; cheap checks come first, so that a mistake is found within seconds.

    With `only_sft` nothing is scored, so the task does not need the columns that the rewards read. Without `samples` no
    engine is needed. `before_loading` is called after all checks that do not need weights.

    Raises:
        DovetailError: for any mistake in fields, columns, data or lengths that would fail later.
    """
    algorithm = assemble(config)
    task, eval_task = _build(config.choice("train.task")), _build(config.choice("eval.task"))
    scorer = make_scorer(config)
    checks: tuple[Check, ...] = ()
    if not only_sft:
        scorer.check_columns(task.columns, config.choice("train.task").component.name)
        _check_interaction(config, task)
        if config.eval.every is not None:
            checks = make_checks(config, scorer, eval_task)
        if samples and processes.is_first():
            _build(config.choice("train.rollout")).check()
    if "answers" in algorithm.plan.inputs:
        _check_answers(config, task)
    tokenizer = processes.after_first(lambda: _tokenizer(config, task, folder / TOKENIZER))
    loop = open_loop(config, tokenizer)
    if samples and processes.is_first() and (recording := getattr(loop, "recording", None)):
        loop = recording(folder)
    train_examples, *reports = prompts(config, task, "train", tokenizer, loop)
    held_out: Sequence[Example] = ()
    if config.eval.every is not None:
        held_out, eval_report = prompts(config, eval_task, "eval", tokenizer, loop)
        reports.append(eval_report)
    if config.apart and CURRENT.get() is not None:
        raise ConfigError(
            f"{'/mesh, '.join(config.apart)}/mesh: the runs of a population are one program on the devices of 'mesh';"
            " remove the other meshes, or set sweep.vectorize = 1"
        )
    devices = Devices.open(config.mesh, config.apart)
    models = Models(config=config, devices=devices, vocab_size=tokenizer.vocab_size)
    for section in ("train", "critic") if algorithm.has_critic else ("train",):
        models.check_tokenizer(section, tokenizer)
    check_roles(models, algorithm.follow, tokenizer)
    models.check_meshes((POLICY, *algorithm.follow, *devices.apart))
    settled = processes.after_first(lambda: settle(config, algorithm, models, devices, folder, refuse=not only_sft))
    before_loading()
    graphdef, weights = make_model(models.policy)
    graphdef, algorithm = in_mode(graphdef, weights, settled.mode), settled.apply(algorithm)
    return Setup(
        config=config,
        algorithm=algorithm,
        task=task,
        eval_task=eval_task,
        tokenizer=tokenizer,
        scorer=scorer,
        process_scorer=_process_scorer(config, task, tokenizer),
        checks=checks,
        train_examples=train_examples,
        eval_examples=held_out[: config.eval.examples],
        reports=tuple(reports),
        loop=loop,
        speakers=_speakers(config, task, train_examples) if "role_ids" in algorithm.plan else Speakers(),
        devices=devices,
        hand_over=HandOver(devices=devices),
        models=models,
        settled=settled,
        graphdef=graphdef,
        weights=weights,
    )


def prompts(
    config: Config, task: Task, split: Split, tokenizer: Tokenizer, loop: OpenLoop | None = None
) -> tuple[Sequence[Example], LengthReport]:
    """Return the examples of a split whose prompts fit, and a report of those that do not.

    Their prompts are the texts that the model reads. With an agent loop of several turns they are the task's own,
    because the environment's additions may differ from step to step.
    """
    examples = task.examples(split)
    kept, report = fit(Rendered(examples, renderer(tokenizer, loop)), tokenizer, prompt_limit(config, split))
    if loop is None:
        return kept, report
    if isinstance(kept, Checked):
        return attrs.evolve(kept, examples=examples), report
    return (Selected(examples, kept.indices) if isinstance(kept, Selected) else examples), report


def renderer(tokenizer: Tokenizer, loop: OpenLoop | None) -> Callable[[Example], str]:
    """Return the function that renders an example's prompt to the text that the model reads."""
    return (lambda example: tokenizer.render(example["prompt"])) if loop is None else loop.prompt


def open_loop(config: Config, tokenizer: Tokenizer) -> OpenLoop | None:
    """Return the agent loop with its tools and interaction; None if there is only a completion."""
    chosen = config.choices.get("train.interaction")
    tools = [
        Tool(name=choice.component.name, function=choice.bind(), target=choice.component.load())
        for choice in config.several("train.tools")
    ]
    loop: AgentLoop = _build(config.choice("train.agent_loop"))
    return loop.open(tokenizer, _build(chosen) if chosen else None, tools, _build(config.choice("train.tool_format")))


def _check_interaction(config: Config, task: Task) -> None:
    """Refuse an interaction that reads a column that the task does not have."""
    if (chosen := config.choices.get("train.interaction")) is None:
        return
    for column in getattr(_build(chosen), "columns", ()):
        if column not in task.columns:
            raise PlanError(
                f"{chosen.component.label} reads the column '{column}', which task"
                f" {config.choice('train.task').component.name} does not have.{nearest(column, task.columns)} Columns:"
                f" {listing(task.columns)}"
            )


def prompt_limit(config: Config, split: str) -> Limit:
    """Return the limit on the prompts of a split."""
    return Limit(
        split=split,
        column="prompt",
        tokens=config.train.max_prompt_tokens,
        setting="train.max_prompt_tokens",
        action=config.train.long_prompts,
        action_setting="train.long_prompts",
    )


def make_scorer(config: Config) -> Scorer:
    """Return the rewards and their manager; a reward that lacks a file or a library raises its error now."""
    scorer = Scorer(
        rewards=tuple(part("reward", choice) for choice in config.several("train.rewards")),
        manager=part("reward_manager", config.choice("train.reward_manager")),
        turns=bool(config.choice("train.agent_loop").component.declares.get("turns")),
    )
    scorer.check()
    return scorer


def _process_scorer(config: Config, task: Task, tokenizer: Tokenizer) -> ProcessScorer | None:
    """Return the process rewards, if there are any; one that lacks a file or a library raises its error now."""
    parts = tuple(part("process_reward", choice) for choice in config.several("train.process_rewards"))
    if not parts:
        return None
    built = tuple(each.build() for each in parts)
    check_columns(parts, task.columns, config.choice("train.task").component.name, (*ALWAYS, ENDS), built)
    return ProcessScorer(rewards=parts, tokenizer=tokenizer)


def _check_answers(config: Config, task: Task) -> None:
    if config.train.answer_column not in task.columns:
        raise _no_column(config, task, "train.answer_column")


def _no_column(config: Config, task: Task, setting: str) -> ConfigError:
    column, name = config.setting(setting), config.choice("train.task").component.name
    return ConfigError(
        f"{setting} = '{column}' is not a column of task {name}.{nearest(column, task.columns)} Columns:"
        f" {listing(task.columns)}"
    )


def _speakers(config: Config, task: Task, examples: Sequence[Example]) -> Speakers:
    """Return the roles in the task's column; a task without the column has one role unless a setting names a column."""
    column = config.train.role_column
    if column in task.columns:
        return Speakers.of(examples, column)
    if config.origins["train.role_column"] == DEFAULT:
        return Speakers()
    raise _no_column(config, task, "train.role_column")


def _build(choice: Choice) -> Any:
    return choice.bind()


def _tokenizer(config: Config, task: Task, folder: Path) -> Tokenizer:
    """Read the run's tokenizer, or create it and save it with the run."""
    maker = _build(config.choice("train.tokenizer"))
    if folder.exists():
        return maker.load(folder)
    tokenizer = maker.make(task.corpus())
    aside = folder.with_name(folder.name + ".tmp")
    aside.mkdir(parents=True, exist_ok=True)
    tokenizer.save(aside)
    aside.rename(folder)
    return tokenizer
