"""Evaluation on held-out examples: greedy, and with several samples of each prompt."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs
import numpy as np

from dovetail.config import Config, Eval
from dovetail.host.rewards import Scorer
from dovetail.host.sampling import Sampled, Sampler
from dovetail.protocols import Example, Sampling, Task
from dovetail.step import keys
from dovetail.training.evaluation import Evaluation, Opening
from dovetail.training.setup import Setup
from dovetail_lab.evaluation.batches import in_full_batch
from dovetail_lab.evaluation.checks import ACCURACY, Answers, Check, make_answers, make_checks
from dovetail_lab.evaluation.outcomes import Outcomes


def _ignore(done: int) -> None:
    """Do nothing: the default where progress is not shown."""


@attrs.frozen(kw_only=True)
class Evaluator:
    """Evaluates on the same examples with the same keys every time, so that evaluations are comparable.

    The first of `checks` is the accuracy. `sampling` provides what `settings` does not, such as the length limit.
    """

    sampler: Sampler
    examples: Sequence[Example]
    checks: tuple[Check, ...]
    answers: Answers | None
    settings: Eval
    sampling: Sampling
    seed: int

    def __call__(
        self, counted: Callable[[str, int], Callable[[int], None]] = lambda what, total: _ignore
    ) -> Evaluation:
        """Complete and score the examples.

        `counted(activity, total)` returns a function that is called with the number of examples done.
        """
        kept, watch = self.settings.saved_samples, counted("evaluation", len(self.examples))
        greedy = self.greedy(watch)
        columns, records = greedy.columns(), greedy.records("greedy")[:kept]
        if self.settings.samples:
            sampled = self.sampled(watch)
            columns |= self.sampled_columns(sampled)
            records += sampled.records("sampled")[:kept]
        return Evaluation(columns=columns, records=records)

    @property
    def _sampling(self) -> Sampling:
        """The run's length limit and stop strings. The log-probabilities are not used, so any support will do."""
        return attrs.evolve(self.sampling, min_p=None, logps="support")

    def greedy(self, watch: Callable[[int], None] = _ignore) -> Outcomes:
        """Complete every prompt greedily; `watch` is called with the number of examples done, first with 0."""
        sampling = attrs.evolve(self._sampling, temperature=0.0, top_k=None, top_p=None)
        return self._run(1, sampling, watch)

    def sampled(self, watch: Callable[[int], None] = _ignore) -> Outcomes:
        """Draw `samples` completions of every prompt."""
        settings = self.settings
        sampling = attrs.evolve(
            self._sampling, temperature=settings.temperature, top_k=settings.top_k, top_p=settings.top_p
        )
        return self._run(settings.samples, sampling, watch)

    def sampled_columns(self, sampled: Outcomes) -> dict[str, np.ndarray]:
        """Return the metrics that need several samples: `sampled_accuracy` and the like, `pass@k`, `maj@k`."""
        shares = {f"sampled_{name}": passed.mean(axis=1) for name, passed in sampled.passed.items()}
        return shares | sampled.best_of(ACCURACY, self.settings.pass_at, self.settings.majority_at)

    def _run(self, samples: int, sampling: Sampling, watch: Callable[[int], None]) -> Outcomes:
        all_keys = keys.per_sample(keys.stream(self.seed, keys.EVALUATION), len(self.examples), samples)
        parts, done, reads = [], 0, self.sampler.scorer.columns
        watch(0)
        for chunk in in_order(self.examples, self.settings.batch_size):
            drawn = self._chunk(chunk, all_keys[done : done + len(chunk)], sampling)
            parts.append(Outcomes.of(drawn, self.checks, self.answers if samples > 1 else None, reads))
            done += len(chunk)
            watch(done)
        return Outcomes.joined(parts)

    def _chunk(self, examples: list[Example], chunk_keys: Any, sampling: Sampling) -> Sampled:
        """Complete and score one batch."""
        size = min(self.settings.batch_size, len(self.examples))
        return self.sampler.score(in_full_batch(self.sampler.complete, examples, chunk_keys, sampling, size))


def in_order(examples: Sequence[Example], batch: int) -> Iterator[list[Example]]:
    """Yield all examples in batches; the last batch may be smaller.

    >>> [len(chunk) for chunk in in_order([{"prompt": "a"}] * 7, batch=3)]
    [3, 3, 1]
    """
    for start in range(0, len(examples), batch):
        yield [examples[i] for i in range(start, min(start + batch, len(examples)))]


def during_training(config: Config, scorer: Scorer, task: Task) -> Opening:
    """Return what opens the evaluator of a run, after a check of its settings.

    Raises:
        DovetailError: as `make_checks`.
    """
    checks = make_checks(config, scorer, task)

    def opened(setup: Setup, sampler: Sampler) -> Evaluator:
        return Evaluator(
            sampler=sampler,
            examples=setup.eval_examples,
            checks=checks,
            answers=make_answers(config),
            settings=config.eval,
            sampling=config.sampling,
            seed=config.run.seed,
        )

    return opened
