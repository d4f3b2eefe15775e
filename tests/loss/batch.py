"""A small random batch with every field that a loss may read."""

from __future__ import annotations

from typing import Any

import numpy as np

import dovetail
from dovetail.registry import REQUIRED, has_float

Batch = dict[str, Any]

LENGTHS = (7, 5, 0, 1, 3, 6)
"""Policy tokens per row: a full one, an empty one, a single one; row 1 gets a hole, as where a tool has answered."""

SELECTIONS = ("clip_cov_tokens", "kl_cov_tokens", "second_moment_tokens")
"""Fields that select tokens, here at random, outside the mask too."""


def make_batch(seed: int = 0) -> Batch:
    """Return float32 fields and a mask with padding, a hole and an empty row."""
    rng = np.random.default_rng(seed)
    rows, width = len(LENGTHS), max(LENGTHS)
    mask = np.arange(width) < np.array(LENGTHS)[:, None]
    mask[1, 2] = False

    def normal(scale: float = 1.0) -> np.ndarray:
        return rng.normal(scale=scale, size=(rows, width)).astype(np.float32)

    old_logps = -np.abs(normal(2.0))
    values = normal()
    return {
        "mask": mask,
        "group_ids": np.arange(rows) // 2,
        "logps": old_logps + normal(0.3),
        "old_logps": old_logps,
        "ref_logps": old_logps + normal(0.3),
        "rollout_logps": old_logps + normal(0.05),
        "advantages": normal(),
        "is_weights": np.exp(normal(0.2)),
        "entropy": np.abs(normal()),
        "values": values,
        "old_values": values + normal(0.5),
        "returns": values + normal(),
        "scores": rng.normal(size=rows).astype(np.float32),
        "turns": np.where(mask, np.cumsum(~mask, axis=1), 0),
        "lengths": mask.sum(-1),
        "truncated": mask.all(-1),
        "positive_weights": np.abs(normal()),
        "full_kl": np.abs(normal(0.3)),
        **{name: rng.random(mask.shape) < 0.5 for name in SELECTIONS},
    }


def select(component: dovetail.Component, batch: Batch) -> Batch:
    """Return what a component reads, in its order."""
    missing = [name for name in component.reads if name not in batch]
    assert not missing, (
        f"{component.label} reads {missing}: add them to {__file__}, so that it joins the property tests"
    )
    return {name: batch[name] for name in component.reads}


def float_params(component: dovetail.Component) -> dict[str, Any]:
    """Return the hyperparameters that the engine traces, as float32, with some number where there is no default."""
    values = {name: 8.0 if value is REQUIRED else value for name, value in component.params.items()}
    return {
        name: np.float32(value)
        for name, value in values.items()
        if name not in component.static and has_float(component.hints[name]) and value is not None
    }


def token_fields(batch: Batch) -> list[str]:
    """Return the names of the floating fields that have a token axis."""
    return [name for name, value in batch.items() if value.ndim == 2 and np.issubdtype(value.dtype, np.floating)]
