"""The sampler's program: it samples and scores batches, and evaluates, always with the latest weights it was given."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any

import attrs
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Key

from dovetail import progress
from dovetail.devices.mesh import Devices
from dovetail.errors import DovetailWarning
from dovetail.host.completer import Completer
from dovetail.host.refill import refill
from dovetail.host.sampling import Sampled, Sampler
from dovetail.host.stored import Stored
from dovetail.plan.compared import KEPT
from dovetail.plan.placement import sampler_places
from dovetail.plan.routing import check_recorded
from dovetail.protocols import Timed, Weights
from dovetail.step import keys
from dovetail.step.parts import Part, Sums, merge
from dovetail.step.view import View, check_shape
from dovetail.training.columns import READS
from dovetail.training.drawn import Extras, Prompts
from dovetail.training.evaluation import Evaluation, Evaluator
from dovetail.training.metrics import Clock, means, rollout_metrics, staleness_metrics
from dovetail.training.order import Task
from dovetail.training.setup import Setup


@attrs.frozen(kw_only=True)
class Cursor:
    """The position of the next batch, empty at the beginning of a run.

    Attributes:
        prompts: the state of the stream of prompts.
        curriculum: the curriculum's state by name; empty without one.
        over: groups that passed the filter and were not needed yet.
    """

    prompts: dict[str, Any] = attrs.field(factory=dict)
    curriculum: dict[str, Any] = attrs.field(factory=dict)
    over: Stored | None = None


@attrs.frozen(kw_only=True)
class Batch:
    """The completions that a step learns from.

    Attributes:
        fields: the fields of the stages `drawn` and `scored`.
        metrics: the metrics of the completions.
        filtered: the metrics of the group filters.
        tokens: number of policy tokens.
        cursor: the position of the next batch.
    """

    fields: dict[str, np.ndarray]
    metrics: dict[str, float]
    filtered: dict[str, float]
    tokens: int
    cursor: Cursor = attrs.field(factory=Cursor)


Message = Batch | Evaluation
Newer = Callable[[], tuple[Weights, int] | None]


@attrs.define(kw_only=True)
class Drawing:
    """The sampler's program, one task at a time. Its results depend only on the weights and on the earlier batches.

    Attributes:
        setup: the pieces of the run.
        sampler: the open engine, with rewards.
        prompts: the source of the next prompts.
        curriculum: the curriculum's state by name; empty without one.
        extras: adds the other fields to those of the completions.
        evaluate: evaluates the engine's current weights; None if no task of the run does.
        newer: returns newer weights with their version, if they may be used in the middle of completions; None if they
            may not.
        over: groups left over by the last step, in the form of a checkpoint, so that a resumed run has the same.
        version: the version of these weights.
    """

    setup: Setup
    sampler: Sampler
    prompts: Prompts
    curriculum: dict[str, Any]
    extras: Extras
    evaluate: Evaluator | None
    over: Stored | None
    version: int = 0
    newer: Newer | None = None

    @classmethod
    def open(cls, setup: Setup, extras: Extras, weights: Weights, version: int, cursor: Cursor) -> Drawing:
        """Open the engine with these weights."""
        config, prompts = setup.config, Prompts.of(setup)
        if cursor.prompts:
            prompts.set_state(cursor.prompts)
        progress.begin("opening", config.choice("train.rollout").component.name)
        places = sampler_places(config)
        engine = setup.engine(weights)
        with ExitStack() as undo:
            undo.callback(engine.close)
            sampler = Sampler(
                complete=Completer(
                    engine=engine,
                    tokenizer=setup.tokenizer,
                    max_prompt_tokens=config.train.max_prompt_tokens,
                    loop=setup.loop,
                ),
                scorer=setup.scorer,
                process_scorer=setup.process_scorer,
                scores_on=setup.devices.of(places[-1]) if places else Devices(None),
            )
            opened = cls(
                setup=setup,
                sampler=sampler,
                prompts=prompts,
                curriculum=dict(cursor.curriculum),
                extras=extras,
                evaluate=setup.evaluator(sampler),
                over=cursor.over,
            )
            opened.use(weights, version)  # for an engine, the weights with which it is opened are version 0
            undo.pop_all()
        return opened

    def use(self, weights: Weights, version: int) -> None:
        """Replace the engine's weights."""
        if version != self.version:
            progress.begin("handing over", "the new weights")
            self.sampler.engine.sync(weights, version)
            self.version = version

    def do(self, task: Task, clock: Clock) -> Message:
        """Sample a batch, or evaluate."""
        if task.batch is not None:
            return self._batch(task.batch, clock)
        assert self.evaluate is not None, "a run that evaluates has an evaluator"
        progress.begin("evaluation")
        found = self.evaluate(progress.counted)
        clock.mark("eval")
        return found

    def close(self) -> None:
        """Close the engine."""
        self.sampler.engine.close()

    def cursor(self) -> Cursor:
        """Return the position of the next batch."""
        return Cursor(prompts=self.prompts.get_state(), curriculum=dict(self.curriculum), over=self.over)

    def _batch(self, step: int, clock: Clock) -> Batch:
        self.prompts.metrics = {}  # a step that only uses groups left over has none
        sampled, greedy, filtered = self._sample(step, clock)
        metrics = rollout_metrics(sampled) | self.prompts.metrics
        if metrics.get("reward/unscored") == 1:
            said = "every reward abstained on every completion of a step, which then learns nothing (reward/unscored)"
            warnings.warn(said, DovetailWarning, stacklevel=2)  # a server of rewards that is gone, for example
        train = self.setup.config.train
        if train.staleness or train.oversample is not None:
            metrics |= staleness_metrics(sampled.completions, step)
        return Batch(
            fields=self.extras.batch(sampled, greedy, step),
            metrics=metrics,
            filtered=filtered,
            tokens=int(sampled.completions.mask.sum()),
            cursor=self.cursor(),
        )

    def _sample(self, step: int, clock: Clock) -> tuple[Sampled, Sampled | None, dict[str, float]]:
        """Sample a group of completions per prompt, and greedy completions if an estimator reads their scores.

        If there is a group filter, rejected groups are replaced with other prompts. Its metrics are returned last.
        """
        algorithm, config = self.setup.algorithm, self.setup.config
        metrics: dict[str, float] = {}
        if not algorithm.filters:
            sampled = self._round(step, 0, clock)
        else:
            reported: Sums = {}
            found = refill(
                lambda number: self._round(step, number, clock),
                lambda sampled: self._keep(sampled, step, reported),
                config.train.prompts,
                config.train.refill_rounds,
                self.over and self.over.restore(),
            )
            sampled, metrics = found.chosen, found.metrics | means(reported)
            if not sampled.kept.any():
                _tell_that_none_is_kept(algorithm.filters, config.train.refill_rounds + 1)
            if config.train.oversample is not None:
                self.over, metrics = found.over and Stored.of(found.over), metrics | found.counts
        if "greedy_scores" not in algorithm.plan:
            return sampled, None, metrics
        prompts = sampled.completed.asked
        greedy = attrs.evolve(config.sampling, temperature=0.0)
        progress.begin(progress.SAMPLING, "greedily", len(prompts))
        drawn = self.sampler(prompts, keys.per_sample(self._key(step), len(prompts), 1), greedy)
        clock.mark("greedy")
        return sampled, drawn, metrics

    def _round(self, step: int, number: int, clock: Clock) -> Sampled:
        """Sample and score the next prompts; the prompts of a step are numbered consecutively over its rounds."""
        config = self.setup.config
        examples = self.prompts.next(self.curriculum, step, number)
        clock.mark("waiting")
        first, samples = number * len(examples), config.train.group_size
        per_sample = keys.per_sample(self._key(step), len(examples), samples, first)
        progress.begin(progress.SAMPLING, total=len(examples) * samples)
        plan = self.setup.algorithm.plan
        options: dict[str, Any] = {"keep_support": True} if KEPT in plan else {}
        if config.train.replay_choices:
            options["keep_choices"] = True
        if self.newer is not None:
            options |= {"newer": self._newer}
        if config.choice("train.rollout").declares.get(READS):
            options["examples"] = examples
        completed = self.sampler.complete(examples, per_sample, config.sampling, options)
        check_recorded(config, completed.completions)
        clock.mark("rollout")
        if isinstance(self.sampler.engine, Timed):
            clock.note({f"rollout/{name}": value for name, value in self.sampler.engine.timings().items()})
        progress.begin("rewards")
        sampled = self.sampler.score(completed, tokens_too=True)
        self.curriculum |= self.prompts.observe(self.curriculum, sampled.scores.total)
        clock.mark("reward")
        return sampled

    def _newer(self) -> tuple[Weights, int] | None:
        """Return newer weights, which the engine then has."""
        assert self.newer is not None, "only given to an engine if there is one"
        if found := self.newer():
            self.version = found[1]
        return found

    def _key(self, step: int) -> Key[Array, ""]:
        return keys.stream(self.setup.config.run.seed, keys.SAMPLING, step)

    def _keep(self, sampled: Sampled, step: int, reported: Sums) -> Bool[np.ndarray, "prompt"]:
        """Return which groups the filter keeps, from its decision for each completion; its metrics are accumulated."""
        algorithm = self.setup.algorithm
        scored, _ = self.extras.on_host(self.extras.batch(sampled, None, step), step, ("scored",))
        batch = jax.tree.map(jnp.asarray, scored)
        view = View(batch | self.extras.always(batch, step), algorithm.fields, algorithm.hyper)
        kept = np.ones(sampled.prompts, bool)
        for each in algorithm.filters:
            answer, measured = each(view, algorithm.hyper)
            check_shape(each, "its decision", answer, (len(sampled.texts),), is_mask=True)
            by_group = np.asarray(answer).reshape(sampled.prompts, -1)
            if (by_group != by_group[:, :1]).any():
                raise each.component.wrong("keeps a group in part; return the same for all completions of a group")
            kept &= by_group[:, 0]
            reported |= merge(reported, each.sums(measured, batch["mask"]))
        return kept


def _tell_that_none_is_kept(filters: Iterable[Part], rounds: int) -> None:
    """Warn once of a step that learns nothing, such as all are whose filter is wrong; the text is always the same."""
    names = " and ".join(f"{part.component.label} of {part.component.origin}" for part in filters)
    warnings.warn(
        f"{names} kept no group of a step in {rounds} rounds: the step learns nothing, though momentum and weight decay"
        " still move the weights (group_filter/kept)",
        DovetailWarning,
        stacklevel=2,
    )
