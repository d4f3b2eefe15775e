"""Random batches for any estimator, with every field of the glossary that exists before the advantages."""

from __future__ import annotations

from typing import Any

import numpy as np

PER_TOKEN = (
    "token_rewards",
    "values",
    "old_values",
    "old_logps",
    "ref_logps",
    "rollout_logps",
    "entropy",
    "old_entropy",
    "old_sum_pi_squared",
    "is_weights",
)
PER_ROW = ("scores", "greedy_scores")

Batch = dict[str, Any]

TOKENS = 7
GROUP_IDS = (5, -3, 5, 40, -3, 5, 40, -3, 5)
"""Interleaved, non-contiguous, of sizes 4, 3 and 2."""


def random_batch(seed: int = 0, group_ids: tuple[int, ...] = GROUP_IDS) -> Batch:
    """Return a batch with holes in its mask; every row has a policy token.

    The probabilities are consistent: π² ≤ ∑π² ≤ π² + (1-π)².
    """
    rng = np.random.default_rng(seed)
    rows = len(group_ids)
    mask = rng.random((rows, TOKENS)) < 0.6
    mask[np.arange(rows), rng.integers(0, TOKENS, rows)] = True
    batch: Batch = {name: rng.normal(size=(rows, TOKENS)).astype(np.float32) for name in PER_TOKEN}
    batch["old_logps"] = -np.abs(batch["old_logps"])
    chosen, rest = np.exp(2 * batch["old_logps"]), np.square(1 - np.exp(batch["old_logps"]))
    batch["old_sum_pi_squared"] = (chosen + rest * rng.random((rows, TOKENS))).astype(np.float32)
    batch["is_weights"] = np.exp(batch["is_weights"])
    batch |= {name: rng.normal(size=rows).astype(np.float32) for name in PER_ROW}
    batch["score_table"] = rng.normal(size=(rows, 2)).astype(np.float32)
    batch["group_ids"] = np.array(group_ids, np.int32)
    batch["role_ids"] = (np.arange(rows, dtype=np.int32) // 2) % 2
    return with_mask(batch, mask)


def with_mask(batch: Batch, mask: np.ndarray) -> Batch:
    """Replace the mask and the fields derived from it; per-token inputs are zero where it is false."""
    clean = {name: np.where(mask, batch[name], 0).astype(np.float32) for name in PER_TOKEN}
    lengths = mask.sum(axis=1).astype(np.int32)
    return batch | clean | {"mask": mask, "lengths": lengths, "truncated": lengths == mask.shape[1]}


def rows(batch: Batch, index: Any) -> Batch:
    """Pick or reorder rows."""
    return {name: value[index] for name, value in batch.items()}


def stacked(*batches: Batch) -> Batch:
    """Concatenate batches along the rows."""
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


def to_the_left(batch: Batch) -> Batch:
    """Move the policy tokens of every row to its front, so that there are no holes."""
    order = np.argsort(~batch["mask"], axis=1, kind="stable")
    moved = {name: np.take_along_axis(batch[name], order, axis=1) for name in (*PER_TOKEN, "mask")}
    return batch | moved


def wider(batch: Batch, columns: int) -> Batch:
    """Add padding on the right."""
    padded = {name: np.pad(batch[name], ((0, 0), (0, columns))) for name in (*PER_TOKEN, "mask")}
    return batch | padded


def with_garbage(batch: Batch, garbage: float) -> Batch:
    """Write `garbage` into all unused values: outside the mask, and the scores of rows without policy tokens."""
    dead = ~batch["mask"].any(axis=1)
    dirty = {name: np.where(batch["mask"], batch[name], garbage).astype(np.float32) for name in PER_TOKEN}
    dirty |= {name: np.where(dead, garbage, batch[name]).astype(np.float32) for name in PER_ROW}
    dirty["score_table"] = np.where(dead[:, None], garbage, batch["score_table"]).astype(np.float32)
    return batch | dirty


def with_scores(batch: Batch, scores: np.ndarray) -> Batch:
    """Replace every form of the rewards: scores, their table, and rewards on tokens (on the last policy token)."""
    scores = scores.astype(np.float32)
    later = np.cumsum(batch["mask"][:, ::-1], axis=1)[:, ::-1]
    return batch | {
        "scores": scores,
        "score_table": np.stack([scores, scores], axis=1),
        "token_rewards": np.where(batch["mask"] & (later == 1), scores[:, None], 0).astype(np.float32),
    }
