"""Build what a run needs from its config: task, tokenizer, model, rewards, engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import jax
import numpy as np
from flax import nnx

from dovetail.config import Choice, Config
from dovetail.errors import ConfigError
from dovetail.protocols import Example, ModelMaker, RolloutEngine, Task, Tokenizer
from dovetail.train import keys
from dovetail.train.algorithm import Algorithm, assemble, part
from dovetail.train.evaluate import Evaluator
from dovetail.train.forward import ValueModel
from dovetail.train.prompts import LengthReport, Limit, fit
from dovetail.train.rewards import Scorer
from dovetail.train.sampling import Sampled, Sampler

TOKENIZER = "tokenizer"


@attrs.frozen(kw_only=True)
class Setup:
    """The pieces of a run, before anything is trained.

    `judge` is the reward that says whether a completion succeeds, where `eval.success` names one; `reports` says how
    many prompts exceed the limit, and the examples are those that are used in spite of it.
    """

    config: Config
    algorithm: Algorithm
    task: Task
    eval_task: Task
    tokenizer: Tokenizer
    scorer: Scorer
    judge: Scorer | None
    train_examples: Sequence[Example]
    eval_examples: Sequence[Example]
    reports: tuple[LengthReport, ...]
    graphdef: Any
    params: Any

    def critic(self, policy_params: Any) -> tuple[Any, Any]:
        """Return the critic's structure and weights; its trunk begins as the policy where the two fit."""
        trunk = _make_model(self.config.choice("critic.model"), self.tokenizer, self.config.run.seed, keys.CRITIC_INIT)
        graphdef, params = nnx.split(ValueModel(trunk, trunk.width))  # pyright: ignore[reportArgumentType, reportAttributeAccessIssue]
        fits = _shapes(params["trunk"]) == _shapes(policy_params)
        if self.config.critic.init_from_policy and fits:
            params["trunk"] = jax.tree.map(lambda x: x.copy(), policy_params)
        return graphdef, params

    def engine(self, params: Any) -> RolloutEngine:
        """Open the rollout engine with these weights."""
        return _build(self.config.choice("train.rollout")).open(self.graphdef, params, self.tokenizer)

    def evaluator(self, sampler: Sampler) -> Evaluator:
        """Return the evaluation of the task's `eval` split."""
        settings = self.config.eval
        return Evaluator(
            sampler=sampler,
            examples=self.eval_examples,
            success=self._success(),
            batch_size=settings.batch_size,
            max_tokens=self.config.sampling.max_tokens,
            samples=settings.samples,
            pass_at=settings.pass_at,
            temperature=settings.temperature,
            seed=self.config.run.seed,
            saved_samples=settings.saved_samples,
        )

    def _success(self) -> Callable[[Sampled], Any]:
        """A completion succeeds if `eval.success`, or else the total score, reaches `eval.success_at`."""
        judge, enough = self.judge, self.config.eval.success_at
        if judge is None:
            return lambda sampled: sampled.scores.total >= enough
        return lambda sampled: _column(judge, sampled) >= enough


def set_up(config: Config, folder: Path) -> Setup:
    """Build everything; cheap checks come first, so that a mistake costs seconds.

    Raises:
        DovetailError: on anything that would fail later: fields, columns, data, lengths.
    """
    algorithm = assemble(config)
    task, eval_task = _build(config.choice("train.task")), _build(config.choice("eval.task"))
    scorer = Scorer(
        rewards=tuple(part("reward", choice) for choice in config.several("train.rewards")),
        manager=part("reward_manager", config.choice("train.reward_manager")),
    )
    judge = None
    if config.eval.success:
        judge = attrs.evolve(scorer, rewards=(part("eval.success", config.choice("eval.success")),))
    for each, choice in ((task, "train.task"), (eval_task, "eval.task")):
        scorer.check_columns(each.columns, config.choice(choice).component.name)
    if judge:
        judge.check_columns(eval_task.columns, config.choice("eval.task").component.name)
    scorer.check()
    _check_pass_at(config)
    tokenizer = _tokenizer(config, task, folder / TOKENIZER)
    train_examples, train_report = fit(task.examples("train"), tokenizer, prompt_limit(config, "train"))
    held_out, eval_report = fit(eval_task.examples("eval"), tokenizer, prompt_limit(config, "eval"))
    model = _make_model(config.choice("train.model"), tokenizer, config.run.seed, keys.INIT)
    graphdef, params = nnx.split(model)
    return Setup(
        config=config,
        algorithm=algorithm,
        task=task,
        eval_task=eval_task,
        tokenizer=tokenizer,
        scorer=scorer,
        judge=judge,
        train_examples=train_examples,
        eval_examples=held_out[: config.eval.examples],
        reports=(train_report, eval_report),
        graphdef=graphdef,
        params=params,
    )


def prompt_limit(config: Config, split: str) -> Limit:
    """The limit on the prompts of a split."""
    return Limit(
        split=split,
        column="prompt",
        tokens=config.train.max_prompt_tokens,
        setting="train.max_prompt_tokens",
        action=config.train.long_prompts,
        action_setting="train.long_prompts",
    )


def _check_pass_at(config: Config) -> None:
    settings = config.eval
    if settings.samples and max(settings.pass_at, default=1) > settings.samples:
        raise ConfigError(
            f"eval.pass_at = {settings.pass_at} needs more samples than eval.samples = {settings.samples}"
        )


def _build(choice: Choice) -> Any:
    return choice.bind()


def _tokenizer(config: Config, task: Task, folder: Path) -> Tokenizer:
    """Read the run's tokenizer, or make it and keep it with the run."""
    maker = _build(config.choice("train.tokenizer"))
    if folder.exists():
        return maker.load(folder)
    tokenizer = maker.make(task.corpus())
    aside = folder.with_name(folder.name + ".tmp")
    aside.mkdir(parents=True, exist_ok=True)
    tokenizer.save(aside)
    aside.rename(folder)
    return tokenizer


def _make_model(choice: Choice, tokenizer: Tokenizer, seed: int, stream: int) -> nnx.Module:
    maker: ModelMaker = _build(choice)
    return maker.make(tokenizer.vocab_size, rngs=nnx.Rngs(params=keys.stream(seed, stream)))


def _shapes(params: Any) -> tuple[Any, list[tuple[int, ...]]]:
    return jax.tree.structure(params), [leaf.shape for leaf in jax.tree.leaves(params)]


def _column(judge: Scorer, sampled: Sampled) -> np.ndarray:
    return np.nan_to_num(judge.table(sampled.examples, sampled.texts)[:, 0], nan=-np.inf)
