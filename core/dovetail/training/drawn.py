"""The host's contributions to a batch: the next prompts, and the fields besides those of the completions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs
import numpy as np
from jaxtyping import Float, Int

from dovetail.config import Choice
from dovetail.data import at_random, prompt_stream
from dovetail.errors import DataError
from dovetail.host.completer import Completed
from dovetail.host.episodes import empty_episodes
from dovetail.host.prompts import answers, encode, encode_completions
from dovetail.host.rewards import Scores, shown
from dovetail.host.sampling import Sampled
from dovetail.plan.compared import KEPT
from dovetail.plan.plan import Plan
from dovetail.plan.routing import CHOICES
from dovetail.protocols import Completions, Curriculum, Example
from dovetail.registry import Component
from dovetail.step import keys
from dovetail.step.moment import Moment
from dovetail.step.parts import Sums, merge, same_form, split_metrics
from dovetail.step.view import View, run_stage
from dovetail.training.setup import Setup
from dovetail.training.texts import demonstrations

CURRICULUM: Final = "curriculum"
"""The name of the curriculum's state in a checkpoint, and of its metrics."""
HOST_STAGES = ("scored", "filtered")
"""The stages at which components of a plugin's own kinds are called before a model has processed the batch."""


@attrs.define(kw_only=True)
class Prompts:
    """The stream of a run's prompts: endlessly shuffled, or chosen by a curriculum from the scores so far."""

    examples: Sequence[Example]
    count: int
    seed: int
    curriculum: Curriculum | None
    component: Component | None
    stream: Any
    _last: Int[np.ndarray, "prompt"] | None = None
    metrics: dict[str, float] = attrs.field(factory=dict)
    """The curriculum's metrics of the last round."""

    @classmethod
    def of(cls, setup: Setup) -> Prompts:
        """Return the prompts of a run."""
        config = setup.config
        chosen: Choice | None = config.choices.get("train.curriculum")
        curriculum = chosen.bind() if chosen else None
        examples, seed, count = setup.train_examples, config.run.seed, config.train.prompts_of_round
        stream = None if curriculum else prompt_stream(examples, seed, count)
        component = chosen.component if chosen else None
        return cls(examples=examples, count=count, seed=seed, curriculum=curriculum, component=component, stream=stream)

    def init(self) -> dict[str, Any]:
        """Return the initial state of the curriculum by name."""
        if self.curriculum is None or self.component is None:
            return {}
        with self.component.named("init"):
            return {CURRICULUM: self.curriculum.init(len(self.examples))}

    def next(self, states: Mapping[str, Any], step: int, number: int) -> list[Example]:
        """Return the prompts of round `number` of a step.

        Raises:
            PluginError: if the curriculum chooses a wrong number of prompts, or one that does not exist.
        """
        if self.curriculum is None or self.component is None:
            return next(self.stream)
        # a generator of its own for each round: a resumed run draws the same prompts without replaying earlier draws
        rng = np.random.default_rng([self.seed % 2**32, keys.PROMPTS, step, number])
        with self.component.named("choose"):
            self._last = np.asarray(self.curriculum.choose(states[CURRICULUM], self.count, rng))
        is_index = np.issubdtype(self._last.dtype, np.integer) and self._last.shape == (self.count,)
        if not (is_index and self._last.min() >= 0 and self._last.max() < len(self.examples)):
            raise self.component.wrong(
                f"chose {shown(str(self._last))}, {self._last.dtype} {self._last.shape}; a round has {self.count} of"
                f" them (train.prompts and train.oversample), each an index, an integer below {len(self.examples)}",
                "choose",
            )
        return [self.examples[int(index)] for index in self._last]

    def observe(self, states: Mapping[str, Any], scores: Float[np.ndarray, "seq"]) -> dict[str, Any]:
        """Return the curriculum's state after the scores of the last prompts of `next`; NaN means no score."""
        if self.curriculum is None or self.component is None or self._last is None:
            return {}
        by_prompt = scores.reshape(len(self._last), -1)
        with self.component.named("update"):
            state, metrics = split_metrics(self.curriculum.update(states[CURRICULUM], self._last, by_prompt))
            self.metrics = {f"{CURRICULUM}/{name}": float(value) for name, value in metrics.items()}
        return {CURRICULUM: same_form(self.component, states[CURRICULUM], state, "update")}

    def get_state(self) -> dict[str, Any]:
        """Return the position of the stream; the state of a curriculum is among the arrays of a checkpoint."""
        return self.stream.get_state() if self.stream else {}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from the position of `get_state`."""
        if self.stream:
            self.stream.set_state(state)


@attrs.frozen(kw_only=True)
class Extras:
    """The fields of the host's stages that the plan needs in addition to those of every batch."""

    setup: Setup
    demonstrations: Sequence[Example]

    @classmethod
    def of(cls, setup: Setup) -> Extras:
        """Gather the data for these fields.

        Raises:
            DataError: if a component reads demonstrations and the task does not have any.
        """
        if "demonstrations" not in setup.algorithm.plan.inputs:
            return cls(setup=setup, demonstrations=())
        most = setup.config.sampling.max_tokens
        return cls(setup=setup, demonstrations=demonstrations(setup, "sampling.max_tokens", most)[0])

    @property
    def _plan(self) -> Plan:
        return self.setup.algorithm.plan

    def batch(self, sampled: Sampled, greedy: Sampled | None, step: int) -> dict[str, np.ndarray]:
        """Return the fields of the sampled completions, with the additional fields."""
        train, batch = self.setup.config.train, sampled.batch()
        if greedy is not None:
            baseline = np.repeat(greedy.scores.total.astype(np.float32), train.group_size)
            # a NaN would spread through sums over a group even where the mask is empty
            batch["greedy_scores"] = np.nan_to_num(baseline)
            batch["mask"] = batch["mask"] & ~np.isnan(baseline)[:, None]  # without a score there is no baseline
        if "versions" in self._plan or "staleness" in self._plan:
            batch["versions"] = sampled.completions.versions
        if "role_ids" in self._plan:
            batch["role_ids"] = self.setup.speakers.ids(sampled.examples)
        if "answers" in self._plan.inputs:
            texts = answers(sampled.examples, train.answer_column)
            batch["answer_tokens"], batch["answer_mask"] = self._completed(texts)
        if "demonstrations" in self._plan.inputs:
            batch |= self._demonstrated(step, len(sampled.texts))
        return batch | self.columns(sampled)

    def columns(self, sampled: Sampled) -> dict[str, np.ndarray]:
        """Return the dataset columns that components read as fields."""
        return {name: numbers(sampled.examples, name, readers) for name, readers in self._plan.columns.items()}

    def on_host(
        self, batch: dict[str, np.ndarray], step: int, stages: Sequence[str] = HOST_STAGES
    ) -> tuple[dict[str, Any], Sums]:
        """Call the components of a plugin's own kinds, which add fields before a model scores the batch."""
        algorithm, metrics = self.setup.algorithm, Sums()
        called = [tuple(part for part in algorithm.at(stage) if part.writes) for stage in stages]
        # without such components nothing goes to a device here; the arrays move once, with the whole batch
        if not any(called):
            return dict(batch), metrics
        always = self.always(batch, step)
        view = View(batch | always, algorithm.fields, algorithm.hyper)
        for parts in called:
            view, found = run_stage(parts, view, algorithm.hyper)
            metrics = merge(metrics, found)
        return {name: value for name, value in view.known().items() if name not in always}, metrics

    def always(self, batch: Mapping[str, Any], step: int) -> dict[str, Any]:
        """Return the fields that exist at every stage of a step."""
        algorithm, moment = self.setup.algorithm, Moment.of(self.setup.config, step, {})
        return moment.fields(algorithm.schedule, dict(algorithm.hyper)) | moment.rows(dict(batch))

    def empty(self, prompts: int = 1) -> dict[str, np.ndarray]:
        """Return the fields of groups of empty completions, in the same form as `batch`."""
        config, size = self.setup.config, prompts * self.setup.config.train.group_size
        shape = (size, config.sampling.max_tokens)
        drawn = Completions(
            tokens=np.zeros(shape, np.int32),
            mask=np.zeros(shape, bool),
            logps=np.zeros(shape, np.float32),
            finish=np.full(size, "error"),
            versions=np.zeros(size, np.int32),
            support=np.zeros((*shape, config.sampling.top_k or 0), np.int32) if KEPT in self._plan else None,
            **self._no_choices(size),
        )
        names = tuple(choice.component.name for choice in config.several("train.rewards"))
        # of an example only the columns are read, for their names and types; its completions are empty
        example = (self.setup.train_examples[0],) * prompts
        sampled = Sampled(
            completed=Completed(
                examples=example,
                asked=example,
                completions=drawn,
                prompt_tokens=np.zeros((prompts, config.train.max_prompt_tokens), np.int32),
                prompt_mask=np.zeros((prompts, config.train.max_prompt_tokens), bool),
                episodes=empty_episodes(size, self.setup.loop.max_turns) if self.setup.loop else None,
            ),
            texts=("",) * size,
            scores=Scores(total=np.zeros(size), table=np.zeros((size, len(names))), names=names),
            kept=np.zeros(size, bool),
            process_rewards=np.zeros(shape, np.float32) if self.setup.process_scorer else None,
        )
        greedy = attrs.evolve(sampled, scores=attrs.evolve(sampled.scores, total=np.zeros(prompts)))
        made = self.batch(sampled, greedy if "greedy_scores" in self._plan else None, 0)
        # made by the same functions as a real batch, so a replay's empty slots cannot differ from it in form
        return {name: np.asarray(array) for name, array in self.on_host(made, 0)[0].items()}

    def _no_choices(self, size: int) -> dict[str, np.ndarray]:
        """Return the choices of empty completions, if they are recorded."""
        train, sampling = self.setup.config.train, self.setup.config.sampling
        if not train.replay_choices:
            return {}
        widths = zip(CHOICES, (sampling.max_tokens, train.max_prompt_tokens), strict=True)
        each = self.setup.models.choices()
        return {name: np.full((size, width, each), -1, np.int16) for name, width in widths}

    def _demonstrated(self, step: int, rows: int) -> dict[str, np.ndarray]:
        """Draw a demonstration for each group; only the group's first row has its mask, so that it counts once."""
        config, size = self.setup.config, self.setup.config.train.group_size
        groups = rows // size
        # drawn by the number of the step, not from a stream, so there is no position to save
        examples = at_random(self.demonstrations, config.run.seed, step * groups, groups)
        texts = [example["prompt"] for example in examples]
        prompt_tokens, prompt_mask = encode(texts, self.setup.tokenizer, config.train.max_prompt_tokens)
        tokens, mask = self._completed([example["completion"] for example in examples])
        first = np.arange(rows) % size == 0
        return {
            "demo_prompt_tokens": np.repeat(prompt_tokens, size, axis=0),
            "demo_prompt_mask": np.repeat(prompt_mask, size, axis=0),
            "demo_tokens": np.repeat(tokens, size, axis=0),
            "demo_mask": np.repeat(mask, size, axis=0) & first[:, None],
        }

    def _completed(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        return encode_completions(texts, self.setup.tokenizer, self.setup.config.sampling.max_tokens)


def numbers(examples: Sequence[Example], column: str, readers: str) -> Float[np.ndarray, "seq"]:
    """Return a dataset column as a field; `readers` are named if it cannot be one.

    Raises:
        DataError: if a value is not a finite number; the message shows it and its prompt.

    >>> numbers([{"prompt": "a", "difficulty": 2}], "difficulty", "train.advantage = mine")
    array([2.], dtype=float32)
    """
    found = np.zeros(len(examples), np.float32)
    for row, example in enumerate(examples):
        value = example[column]
        try:
            found[row] = float(value) if isinstance(value, int | float | np.number) else np.nan
        except OverflowError:
            found[row] = np.inf
        if not np.isfinite(found[row]):
            raise DataError(
                f"{readers} reads the column '{column}' as a field, and it is {value!r} where the prompt is"
                f" {str(example['prompt'])[:80]!r}; a field holds finite numbers"
            )
    return found
