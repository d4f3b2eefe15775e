"""Completes a task's examples and scores the completions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from dovetail.devices.mesh import Devices
from dovetail.host.completer import Completed, Completer
from dovetail.host.episodes import fields_of
from dovetail.host.process_rewards import ProcessScorer
from dovetail.host.records import joined, selected
from dovetail.host.rewards import Scorer, Scores
from dovetail.protocols import Completions, Example, RolloutEngine, Sampling


@attrs.frozen(kw_only=True)
class Sampled:
    """Scored completions, prompt-major: row p·n + i answers prompt p; `kept` is false if a group filter rejected it."""

    completed: Completed
    texts: tuple[str, ...]
    scores: Scores
    kept: Bool[np.ndarray, "seq"]
    process_rewards: Float[np.ndarray, "seq token"] | None = None
    process_metrics: Mapping[str, Float[np.ndarray, "seq"]] = attrs.field(factory=dict)

    @property
    def prompts(self) -> int:
        """The number of prompts."""
        return len(self.completed.examples)

    @property
    def group_size(self) -> int:
        """The number of completions of each prompt."""
        return self.completed.samples

    @property
    def examples(self) -> tuple[Example, ...]:
        """The example that each row answers."""
        return tuple(example for example in self.completed.examples for _ in range(self.group_size))

    @property
    def completions(self) -> Completions:
        """The sampled completions."""
        return self.completed.completions

    @classmethod
    def joined(cls, parts: Sequence[Sampled]) -> Sampled:
        """Concatenate rounds."""
        return joined(parts, [len(part.texts) for part in parts])

    def of(self, prompts: Int[np.ndarray, "prompt"]) -> Sampled:
        """Return the groups of some prompts, in the given order."""
        return selected(self, prompts, self.group_size)

    def batch(self) -> dict[str, np.ndarray]:
        """Return the fields of the stages `drawn` and `scored`, one row per completion.

        A completion without a score, or rejected by the group filter, has an empty mask: it does not count in any loss,
        statistic or baseline.
        """
        n, drawn = self.group_size, self.completions
        mask = drawn.mask & (self.kept & ~np.isnan(self.scores.total))[:, None]
        placed = {} if self.process_rewards is None else {"process_rewards": self.process_rewards}
        if self.scores.names:
            placed["score_table"] = self.scores.table.astype(np.float32)
        if self.completed.episodes is not None:
            placed |= fields_of(drawn, self.completed.episodes)
        kept = {name: getattr(drawn, name) for name in ("support", "choices", "prompt_choices")}
        placed |= {name: array for name, array in kept.items() if array is not None}
        return placed | {
            "prompt_tokens": np.repeat(self.completed.prompt_tokens, n, axis=0),
            "prompt_mask": np.repeat(self.completed.prompt_mask, n, axis=0),
            "tokens": drawn.tokens,
            "mask": mask,
            "group_ids": np.repeat(np.arange(self.prompts, dtype=np.int32), n),
            "rollout_logps": drawn.logps.astype(np.float32),
            "lengths": mask.sum(axis=1, dtype=np.int32),
            "truncated": drawn.truncated,
            "scores": np.nan_to_num(self.scores.total).astype(np.float32),
        }


@attrs.frozen(kw_only=True)
class Sampler:
    """Completes examples and scores the completions, under the mesh of `scores_on`."""

    complete: Completer
    scorer: Scorer
    process_scorer: ProcessScorer | None = None
    scores_on: Devices = attrs.field(factory=lambda: Devices(None))

    @property
    def engine(self) -> RolloutEngine:
        """The open engine."""
        return self.complete.engine

    def __call__(self, examples: Sequence[Example], keys: Key[Array, "prompt sample"], sampling: Sampling) -> Sampled:
        """Sample and score."""
        return self.score(self.complete(examples, keys, sampling))

    def score(self, completed: Completed, *, tokens_too: bool = False) -> Sampled:
        """Decode and score completions, and with `tokens_too` their tokens; failed episodes have no score.

        The rewards that an interaction gave to the turns of an episode are part of its score.
        """
        drawn, n = completed.completions, completed.samples
        decode = self.complete.tokenizer.decode
        texts = [decode(row[kept].tolist()) for row, kept in zip(drawn.tokens, drawn.mask, strict=True)]
        examples = tuple(example for example in completed.examples for _ in range(n))
        episodes, failed = completed.episodes, drawn.finish == "error"
        process, measured = None, {}
        with self.scores_on.use():
            scores = self.scorer(examples, texts, drawn, n, episodes)
            if tokens_too and self.process_scorer is not None:
                process, measured = self.process_scorer(examples, texts, drawn, n)
        earned = np.zeros(len(texts)) if episodes is None else episodes.turn_rewards.sum(axis=1)
        return Sampled(
            completed=completed,
            texts=tuple(texts),
            scores=attrs.evolve(
                scores,
                total=np.where(failed, np.nan, scores.total + earned),
                table=np.where(failed[:, None], np.nan, scores.table),
            ),
            kept=np.ones(len(texts), bool),
            process_rewards=process,
            process_metrics={name: np.where(failed, np.nan, values) for name, values in measured.items()},
        )
