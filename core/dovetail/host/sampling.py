"""Sample completions of a task's examples and score them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
import numpy as np
from jaxtyping import Array, Key

from dovetail.host.process_rewards import ProcessScorer
from dovetail.host.prompts import encode
from dovetail.host.rewards import Scorer, Scores
from dovetail.protocols import Completions, Example, RolloutEngine, Sampling, Tokenizer


@attrs.frozen(kw_only=True)
class Sampled:
    """Scored completions, prompt-major: row p·n + i answers prompt p; `kept` is false where a group filter rejected."""

    examples: tuple[Example, ...]
    texts: tuple[str, ...]
    completions: Completions
    prompt_tokens: np.ndarray
    prompt_mask: np.ndarray
    scores: Scores
    kept: np.ndarray
    process_rewards: np.ndarray | None = None
    process_metrics: Mapping[str, np.ndarray] = attrs.field(factory=dict)

    @property
    def group_size(self) -> int:
        """Completions of each prompt."""
        return len(self.texts) // len(self.prompt_tokens)

    def batch(self) -> dict[str, np.ndarray]:
        """Return the fields of stages `rollout` and `reward`, one row per completion.

        A completion without a score, or not kept by the group filter, has an empty mask: it is in no loss, no statistic
        and no group's baseline.
        """
        n, drawn = self.group_size, self.completions
        mask = drawn.mask & (self.kept & ~np.isnan(self.scores.total))[:, None]
        placed = {} if self.process_rewards is None else {"process_rewards": self.process_rewards}
        if self.scores.names:
            placed["score_table"] = self.scores.table.astype(np.float32)
        if drawn.support is not None:
            placed["support"] = drawn.support
        return placed | {
            "prompt_tokens": np.repeat(self.prompt_tokens, n, axis=0),
            "prompt_mask": np.repeat(self.prompt_mask, n, axis=0),
            "tokens": drawn.tokens,
            "mask": mask,
            "group_ids": np.repeat(np.arange(len(self.prompt_tokens), dtype=np.int32), n),
            "rollout_logps": drawn.logps.astype(np.float32),
            "lengths": mask.sum(axis=1, dtype=np.int32),
            "truncated": drawn.truncated,
            "scores": np.nan_to_num(self.scores.total).astype(np.float32),
        }


@attrs.frozen(kw_only=True)
class Sampler:
    """An open engine with what it needs to turn examples into scored completions."""

    engine: RolloutEngine
    tokenizer: Tokenizer
    scorer: Scorer
    max_prompt_tokens: int
    process_scorer: ProcessScorer | None = None

    def draw(
        self,
        examples: Sequence[Example],
        keys: Key[Array, "prompt sample"],
        sampling: Sampling,
        *,
        keep_support: bool = False,
    ) -> tuple[Completions, np.ndarray, np.ndarray]:
        """Sample `keys.shape[1]` completions of each example; returns them with the prompts' arrays."""
        tokens, mask = encode([e["prompt"] for e in examples], self.tokenizer, self.max_prompt_tokens)
        options = {"keep_support": True} if keep_support else {}  # only engines that declare it take it
        return self.engine.generate(tokens, mask, keys, sampling, **options), tokens, mask

    def __call__(self, examples: Sequence[Example], keys: Key[Array, "prompt sample"], sampling: Sampling) -> Sampled:
        """Sample and score."""
        drawn, tokens, mask = self.draw(examples, keys, sampling)
        return self.score(examples, drawn, tokens, mask)

    def score(
        self,
        examples: Sequence[Example],
        drawn: Completions,
        prompt_tokens: np.ndarray,
        prompt_mask: np.ndarray,
        *,
        tokens_too: bool = False,
    ) -> Sampled:
        """Decode completions and score them, and their tokens where asked; one that failed has no score."""
        n = len(drawn.tokens) // len(examples)
        texts = [self.tokenizer.decode(row[kept].tolist()) for row, kept in zip(drawn.tokens, drawn.mask, strict=True)]
        repeated = tuple(example for example in examples for _ in range(n))
        scores, failed = self.scorer(repeated, texts, drawn, n), drawn.finish == "error"
        process, measured = None, {}
        if tokens_too and self.process_scorer is not None:
            process, measured = self.process_scorer(repeated, texts, drawn, n)
        return Sampled(
            examples=repeated,
            texts=tuple(texts),
            completions=drawn,
            prompt_tokens=prompt_tokens,
            prompt_mask=prompt_mask,
            scores=attrs.evolve(
                scores,
                total=np.where(failed, np.nan, scores.total),
                table=np.where(failed[:, None], np.nan, scores.table),
            ),
            kept=np.ones(len(texts), bool),
            process_rewards=process,
            process_metrics={name: np.where(failed, np.nan, values) for name, values in measured.items()},
        )
