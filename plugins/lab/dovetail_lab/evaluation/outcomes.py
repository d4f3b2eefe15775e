"""The outcomes of completing held-out prompts, and the metrics computed from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs
import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from dovetail.host.sampling import Sampled
from dovetail.protocols import Episodes, Example
from dovetail.training.evaluation import Columns
from dovetail_lab.evaluation.best_of import majority_at_k, pass_at_k
from dovetail_lab.evaluation.checks import Answers, Check

LONGEST: Final = 500
"""Characters of a column that a record of a completion keeps: some columns hold whole documents."""
ANSWER: Final = "answer"
"""The column that records have as `expected`, since theirs of that name is what the completion answers."""


@attrs.frozen(kw_only=True)
class Outcomes:
    """The outcomes of the completions of some prompts, without their tokens.

    Attributes:
        examples: one for each prompt.
        texts: the completions, prompt-major.
        columns_read: for each prompt, the columns that the rewards read, by name, in short.
        answers: the answer in each completion, or None; empty if answers are not extracted.
        passed: for each check, by name, which completions pass it.
        scores: the total scores; NaN where every reward abstained.
        rewards: for each reward, by name, its scores, and as `REWARD/METRIC` what it logs; NaN where there is none.
        lengths: the number of policy tokens, including the EOS.
        finish: why each completion ended, a `dovetail.protocols.Finish`.
        played: for multi-turn episodes, why each one ended, the rewards of its turns, and its messages; otherwise
            empty.
    """

    examples: tuple[Example, ...]
    texts: tuple[str, ...]
    columns_read: tuple[Mapping[str, Any], ...]
    answers: tuple[str | None, ...]
    passed: Mapping[str, Bool[np.ndarray, "prompt sample"]]
    scores: Float[np.ndarray, "prompt sample"]
    rewards: Mapping[str, Float[np.ndarray, "prompt sample"]]
    lengths: Int[np.ndarray, "prompt sample"]
    finish: Shaped[np.ndarray, "prompt sample"]
    played: tuple[Mapping[str, Any], ...] = ()

    @classmethod
    def of(
        cls, sampled: Sampled, checks: Sequence[Check], answers: Answers | None, reads: Sequence[str] = ()
    ) -> Outcomes:
        """Apply the checks to completions, with the same number of samples for each prompt.

        Args:
            sampled: the completions, scored.
            checks: what may pass.
            answers: extracts the answer of each completion; None if answers are not compared.
            reads: the columns that the rewards read.
        """
        prompts, samples = sampled.prompts, sampled.group_size
        drawn, scores = sampled.completions, sampled.scores

        def table(values: np.ndarray) -> np.ndarray:
            return values.reshape(prompts, samples)

        return cls(
            examples=sampled.completed.examples,
            texts=sampled.texts,
            columns_read=tuple(_in_short(example, reads) for example in sampled.completed.examples),
            answers=tuple(answers(sampled.texts)) if answers else (),
            passed={check.name: table(check(sampled)) for check in checks},
            scores=table(scores.total),
            rewards={name: table(column) for name, column in zip(scores.names, scores.table.T, strict=True)}
            | {name: table(values) for name, values in scores.metrics.items()},
            lengths=table(drawn.mask.sum(axis=1)),
            finish=table(drawn.finish),
            played=() if (episodes := sampled.completed.episodes) is None else _played(episodes),
        )

    @classmethod
    def joined(cls, parts: Sequence[Outcomes]) -> Outcomes:
        """Concatenate the outcomes of several batches."""

        def together(tables: Sequence[Any]) -> Any:
            if isinstance(tables[0], Mapping):
                names = dict.fromkeys(name for table in tables for name in table)  # a batch may lack a metric
                missing = [np.full(part.scores.shape, np.nan) for part in parts]
                each = list(zip(tables, missing, strict=True))
                return {name: np.concatenate([table.get(name, none) for table, none in each]) for name in names}
            if isinstance(tables[0], tuple):
                return tuple(item for table in tables for item in table)
            return np.concatenate(tables)

        names = [field.name for field in attrs.fields(cls)]
        return cls(**{name: together([getattr(part, name) for part in parts]) for name in names})

    @property
    def samples(self) -> int:
        """The number of completions of each prompt."""
        return self.scores.shape[1]

    def columns(self) -> Columns:
        """Return, per prompt, the pass rate of each check, mean rewards and length, and the fraction truncated."""
        found = {name: passed.mean(axis=1) for name, passed in self.passed.items()}
        found |= {f"reward/{name}": _mean_of_given(scores) for name, scores in self.rewards.items()}
        return found | {
            "reward_mean": _mean_of_given(self.scores),
            "length_mean": self.lengths.mean(axis=1),
            "truncated": (self.finish == "length").mean(axis=1),
        }

    def best_of(self, check: str, pass_at: Sequence[int], majority_at: Sequence[int]) -> Columns:
        """Return, per prompt, `pass@k` and `maj@k` of a check for the given values of k."""
        right, n = self.passed[check], self.samples
        found = {f"pass@{k}": np.array([pass_at_k(n, int(row.sum()), k) for row in right]) for k in pass_at}
        votes = [self.answers[i : i + n] for i in range(0, len(self.answers), n)]
        for k in majority_at:
            shares = [majority_at_k(answers, row, k) for answers, row in zip(votes, right.tolist(), strict=True)]
            found[f"maj@{k}"] = np.array(shares)
        return found

    def records(self, how: str) -> list[dict[str, Any]]:
        """Return a JSON-compatible record for each completion, prompt-major; `how` names the way they were sampled."""
        return [self._record(how, *divmod(row, self.samples), text) for row, text in enumerate(self.texts)]

    def _record(self, how: str, prompt: int, sample: int, text: str) -> dict[str, Any]:
        at = (prompt, sample)
        answer = {"answer": self.answers[prompt * self.samples + sample]} if self.answers else {}
        expected = {"expected": _short(str(self.examples[prompt][ANSWER]))} if ANSWER in self.examples[prompt] else {}
        read = {"columns": dict(columns)} if (columns := self.columns_read[prompt]) else {}
        return {
            "how": how,
            "index": prompt,
            "sample": sample,
            "prompt": self.examples[prompt]["prompt"],
            "completion": text,
            **answer,
            **expected,
            **read,
            "score": _number(self.scores[at]),
            "rewards": {name: _number(table[at]) for name, table in self.rewards.items()},
            **{name: bool(table[at]) for name, table in self.passed.items()},
            "tokens": int(self.lengths[at]),
            "truncated": bool(self.finish[at] == "length"),
            **(self.played[prompt * self.samples + sample] if self.played else {}),
        }


def _in_short(example: Example, reads: Sequence[str]) -> dict[str, Any]:
    """Return the columns of an example that the rewards read, except `ANSWER`; numbers as they are, all else as text.

    >>> _in_short({"prompt": "?", "answer": "4", "tests": ["f(1) == 2"], "level": 3}, ["answer", "tests.unit", "level"])
    {'tests': "['f(1) == 2']", 'level': 3}
    """
    names = dict.fromkeys(name.partition(".")[0] for name in reads)
    return {name: _short(example[name]) for name in names if name in example and name != ANSWER}


def _short(value: Any) -> Any:
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and np.isfinite(value)):
        return value
    text = str(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}... ({len(text):,} characters)"


def _played(episodes: Episodes) -> tuple[Mapping[str, Any], ...]:
    return tuple(
        {"ended": str(end), "turn_rewards": rewards[mask].tolist(), "messages": [dict(said) for said in messages]}
        for end, rewards, mask, messages in zip(
            episodes.ends, episodes.turn_rewards, episodes.turn_mask, episodes.conversations, strict=True
        )
    )


def _mean_of_given(scores: Float[np.ndarray, "prompt sample"]) -> Float[np.ndarray, "prompt"]:
    given = ~np.isnan(scores)
    count = given.sum(axis=1)
    return np.where(count > 0, np.where(given, scores, 0.0).sum(axis=1) / np.maximum(count, 1), np.nan)


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
