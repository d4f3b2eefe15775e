"""Evaluation on held-out examples: greedy accuracy, and unbiased pass@k from several samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import jax
import numpy as np
from jaxtyping import Bool

from dovetail.data import in_order
from dovetail.protocols import Example, Sampling
from dovetail.train import keys
from dovetail.train.sampling import Sampled, Sampler


def pass_at_k(n: int, correct: int, k: int) -> float:
    """Probability that at least one of k samples is right, estimated without bias from n samples.

    pass@k = 1 - C(n-c, k) / C(n, k). Chen et al. 2021, *Evaluating large language models trained on code*, equation 1.

    Args:
        n: samples drawn of one prompt.
        correct: c, how many of them are right.
        k: at most n.

    >>> pass_at_k(4, 1, 1), pass_at_k(4, 1, 4), pass_at_k(4, 0, 2)
    (0.25, 1.0, 0.0)
    """
    if not 0 < k <= n:
        raise ValueError(f"pass@{k} needs 1 to {n} samples of {n}")
    return 1.0 - math.comb(n - correct, k) / math.comb(n, k)


@attrs.frozen(kw_only=True)
class Evaluator:
    """Evaluates on the same examples with the same keys every time, so that evaluations are comparable."""

    sampler: Sampler
    examples: Sequence[Example]
    success: Callable[[Sampled], Bool[np.ndarray, "seq"]]
    batch_size: int
    max_tokens: int
    samples: int
    pass_at: tuple[int, ...]
    temperature: float
    seed: int
    saved_samples: int

    def __call__(self) -> tuple[dict[str, float], list[dict[str, Any]]]:
        """Return metrics (`eval/accuracy`, `eval/pass@k`, ...) and the first completions as records."""
        greedy = Sampling(temperature=0.0, max_tokens=self.max_tokens)
        right, drawn = self._run(1, greedy)
        metrics = {
            "eval/accuracy": float(right.mean()),
            **_reward_means(drawn),
            "eval/reward_mean": float(np.nan_to_num(np.concatenate([d.scores.total for d in drawn])).mean()),
            "eval/length_mean": float(np.concatenate([d.completions.mask.sum(1) for d in drawn]).mean()),
            "eval/truncated": float(np.concatenate([d.completions.truncated for d in drawn]).mean()),
        }
        records = [record for sampled in drawn for record in _records(sampled, "greedy")][: self.saved_samples]
        if self.samples:
            right, drawn = self._run(self.samples, Sampling(temperature=self.temperature, max_tokens=self.max_tokens))
            counts = right.reshape(-1, self.samples).sum(axis=1)
            metrics["eval/sampled_accuracy"] = float(right.mean())
            metrics |= {
                f"eval/pass@{k}": float(np.mean([pass_at_k(self.samples, int(c), k) for c in counts]))
                for k in self.pass_at
            }
            records += [r for sampled in drawn for r in _records(sampled, "sampled")][: self.saved_samples]
        return metrics, records

    def _run(self, samples: int, sampling: Sampling) -> tuple[Bool[np.ndarray, "seq"], list[Sampled]]:
        all_keys = keys.per_sample(keys.stream(self.seed, keys.EVALUATION), len(self.examples), samples)
        drawn = []
        for number, chunk in enumerate(in_order(self.examples, self.batch_size)):
            start = number * self.batch_size
            drawn.append(self._chunk(chunk, all_keys[start : start + len(chunk)], sampling))
        return np.concatenate([self.success(sampled) for sampled in drawn]), drawn

    def _chunk(self, examples: list[Example], chunk_keys: Any, sampling: Sampling) -> Sampled:
        """Run one batch, filled up to the usual size so that it compiles once; what fills it is not scored."""
        size = min(self.batch_size, len(self.examples))
        filling = size - len(examples)
        filled = examples + examples[:1] * filling
        if filling:
            chunk_keys = jax.numpy.concatenate([chunk_keys, jax.numpy.repeat(chunk_keys[:1], filling, axis=0)])
        completions, tokens, mask = self.sampler.draw(filled, chunk_keys, sampling)
        rows = len(examples) * chunk_keys.shape[1]
        kept = type(completions)(**{name: value[:rows] for name, value in attrs.asdict(completions).items()})
        return self.sampler.score(examples, kept, tokens[: len(examples)], mask[: len(examples)])


def _reward_means(drawn: Sequence[Sampled]) -> dict[str, float]:
    """Return the mean of each reward over the completions on which it did not abstain."""
    table = np.concatenate([sampled.scores.table for sampled in drawn])
    columns = {name: table[:, i][~np.isnan(table[:, i])] for i, name in enumerate(drawn[0].scores.names)}
    return {f"eval/reward/{name}": float(column.mean()) for name, column in columns.items() if len(column)}


def _records(sampled: Sampled, how: str) -> list[dict[str, Any]]:
    table = sampled.scores.table
    return [
        {
            "how": how,
            "prompt": example["prompt"],
            "completion": text,
            "score": _number(sampled.scores.total[i]),
            "rewards": {n: _number(v) for n, v in zip(sampled.scores.names, table[i], strict=True)},
            "tokens": int(sampled.completions.mask[i].sum()),
            "truncated": bool(sampled.completions.truncated[i]),
        }
        for i, (example, text) in enumerate(zip(sampled.examples, sampled.texts, strict=True))
    ]


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
