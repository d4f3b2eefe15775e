"""Builds the pieces of a run from its config: task, tokenizer, model, rewards, engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs

from dovetail.config import Config
from dovetail.devices import processes
from dovetail.devices.hand_over import HandOver
from dovetail.devices.mesh import Devices
from dovetail.devices.population import CURRENT, make_model
from dovetail.errors import ConfigError
from dovetail.host.placed import PlacedEngine
from dovetail.host.process_rewards import ProcessScorer
from dovetail.host.prompts import LengthReport
from dovetail.host.rewards import Scorer
from dovetail.host.sampling import Sampler
from dovetail.host.speakers import Speakers
from dovetail.plan.placement import samples_here
from dovetail.plan.roles import ROLLOUT
from dovetail.protocols import Example, OpenLoop, Recordable, RolloutEngine, Settled, Task, Tokenizer, Weights
from dovetail.step.algorithm import Algorithm, assemble
from dovetail.training.columns import check_answers, check_drawn, make_process_scorer, make_scorer, make_speakers
from dovetail.training.evaluation import Evaluator, Opening, evaluator
from dovetail.training.models import Models, in_mode
from dovetail.training.settled import settle
from dovetail.training.texts import TOKENIZER, open_loop, open_tokenizer, prompts, renderer


@attrs.frozen(kw_only=True)
class Setup:
    """The pieces of a run, before anything is trained.

    `open_evaluator` is None if the run does not evaluate. `reports` has the numbers of prompts that exceed the limit;
    the examples are those that are used.
    """

    config: Config
    algorithm: Algorithm
    task: Task
    eval_task: Task
    tokenizer: Tokenizer
    scorer: Scorer
    process_scorer: ProcessScorer | None
    open_evaluator: Opening | None
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

    @property
    def sampler_devices(self) -> Devices:
        """The devices of a sampler's program with a thread of its own.

        If the engine computes elsewhere, it is a single one: programs of two threads that span the same devices may
        wait for each other for ever.
        """
        return self.devices.of(ROLLOUT) if samples_here(self.config) else self.devices.first

    def engine(self, weights: Weights) -> RolloutEngine:
        """Open the rollout engine with these weights, which are already where it takes them from."""
        devices = self.devices.of(ROLLOUT)
        with devices.use():
            opened = self.config.choice("train.rollout").bind().open(self.graphdef, weights, self.tokenizer)
        return opened if devices is self.devices else PlacedEngine(opened, devices)

    def evaluator(self, sampler: Sampler) -> Evaluator | None:
        """Return the evaluator of the weights that a sampler has; None if the run does not evaluate."""
        return self.open_evaluator and self.open_evaluator(self, sampler)


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
    task, eval_task = config.choice("train.task").bind(), config.choice("eval.task").bind()
    scorer = make_scorer(config)
    open_evaluator = None if only_sft else _checked(config, task, eval_task, scorer, samples=samples)
    if "answers" in algorithm.plan.inputs:
        check_answers(config, task)
    tokenizer = processes.after_first(lambda: open_tokenizer(config, task, folder / TOKENIZER))
    loop = open_loop(config, tokenizer)
    if samples and processes.is_first() and isinstance(loop, Recordable):
        loop = loop.recording(folder)
    train_examples, *reports = prompts(config, task, "train", tokenizer, loop)
    held_out: Sequence[Example] = ()
    if config.eval.every is not None:
        held_out, eval_report = prompts(config, eval_task, "eval", tokenizer, loop)
        reports.append(eval_report)
    process_scorer = make_process_scorer(config, task, tokenizer)
    speakers = make_speakers(config, task, train_examples) if "role_ids" in algorithm.plan else Speakers()
    devices = _open_devices(config)
    models = _checked_models(config, algorithm, devices, tokenizer)
    settled = processes.after_first(lambda: settle(config, algorithm, models, devices, folder, refuse=not only_sft))
    before_loading()
    graphdef, weights = make_model(models.policy)
    return Setup(
        config=config,
        algorithm=settled.apply(algorithm),
        task=task,
        eval_task=eval_task,
        tokenizer=tokenizer,
        scorer=scorer,
        process_scorer=process_scorer,
        open_evaluator=open_evaluator,
        train_examples=train_examples,
        eval_examples=held_out[: config.eval.examples],
        reports=tuple(reports),
        loop=loop,
        speakers=speakers,
        devices=devices,
        hand_over=HandOver(devices=devices, on_host=() if samples_here(config) else (ROLLOUT,)),
        models=models,
        settled=settled,
        graphdef=in_mode(graphdef, weights, settled.mode),
        weights=weights,
    )


def _checked(config: Config, task: Task, eval_task: Task, scorer: Scorer, *, samples: bool) -> Opening | None:
    """Refuse a task without the columns that rewards and interaction read; return what opens the evaluator."""
    scorer.check_columns(task.columns, config.choice("train.task").component.name)
    check_drawn(config, task)
    opening = evaluator(config, scorer, eval_task)
    if samples and processes.is_first():
        config.choice("train.rollout").bind().check()
    return opening


def _open_devices(config: Config) -> Devices:
    """Create the meshes; a population has a single one."""
    if config.apart and CURRENT.get() is not None:
        raise ConfigError(
            f"{'/mesh, '.join(config.apart)}/mesh: the runs of a population are one program on the devices of 'mesh';"
            " remove the other meshes, or set sweep.vectorize = 1"
        )
    return Devices.open(config.mesh, config.apart)


def _checked_models(config: Config, algorithm: Algorithm, devices: Devices, tokenizer: Tokenizer) -> Models:
    """Return the maker of the models, after checks of each against the tokenizer and its mesh; no weights are read."""
    models = Models(config=config, devices=devices, vocab_size=tokenizer.vocab_size)
    for section in ("train", "critic") if algorithm.has_critic else ("train",):
        models.check_tokenizer(section, tokenizer)
    models.check_roles(algorithm.follow, tokenizer)
    models.check_algorithm(algorithm)
    return models
