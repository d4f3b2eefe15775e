"""Golden cases in the form that the estimators read."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from tests.golden import Arrays, load

import dovetail

Case = dict[str, Any]
Rows = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Scores, group ids and mask."""

TOLERANCE: dict[str, dict[str, Any]] = {
    "float64": {"rtol": 1e-9, "atol": 1e-9},
    "float32": {"rtol": 1e-5, "atol": 1e-5},
}
EMPTY_ROW = "verl counts a row without policy tokens as a member of its group"
ALONE = "verl gives a group of one its raw score (its rloo_vectorized gives zero)"
VERL_ROWS: dict[str, dict[int, str]] = {
    "s2_groups": dict.fromkeys((0, 1, 2, 3), EMPTY_ROW) | {7: ALONE},
    "s4_1x1": {0: ALONE},
}
"""Rows in which the baseline methods depart from verl, by set."""
IN_FLOAT32 = {"grpo_vectorized": "verl computes it in float32, whatever it is given"}


@functools.cache
def _compiled(name: str, statics: tuple[tuple[str, Any], ...]) -> Any:
    component = dovetail.get("advantage", name)
    return jax.jit(lambda fields, floats: component(**fields, **floats, **dict(statics)))


def estimate(name: str, fields: Arrays, **params: Any) -> tuple[np.ndarray, ...]:
    """Return the results of an estimator, compiled once for each shape and set of static settings."""
    static = dovetail.get("advantage", name).static
    statics = tuple((key, value) for key, value in params.items() if key in static)
    floats = {key: value for key, value in params.items() if key not in static}
    result = _compiled(name, statics)(fields, floats)
    return tuple(np.asarray(part) for part in (result if isinstance(result, tuple) else (result,)))


def padded(fields: Arrays, rows: int = 16, width: int = 32) -> Arrays:
    """Pad a batch with rows without policy tokens and with padding tokens, so that all batches share one compilation."""

    def fill(name: str, field: np.ndarray) -> np.ndarray:
        per_token = field.ndim > 1 and name != "score_table"
        more = [(0, rows - len(field)), (0, width - field.shape[1] if per_token else 0)]
        return np.pad(field, more[: field.ndim], constant_values=-1 if name == "group_ids" else 0)

    return {name: fill(name, field) for name, field in fields.items()}


def in_one_batch(name: str, batches: Sequence[Rows], **params: Any) -> list[np.ndarray]:
    """Return the advantages of several batches, computed as one batch with the prompts of all.

    The baseline methods treat each group separately, so the result is the same, with only one compilation.
    """
    width = max(mask.shape[1] for _, _, mask in batches)
    fields = {
        "scores": np.concatenate([scores for scores, _, _ in batches]),
        "group_ids": np.concatenate([ids + 1000 * i for i, (_, ids, _) in enumerate(batches)]),
        "mask": np.concatenate([np.pad(mask, ((0, 0), (0, width - mask.shape[1]))) for _, _, mask in batches]),
    }
    (advantages,) = estimate(name, fields, **params)
    ends = np.cumsum([len(scores) for scores, _, _ in batches])[:-1]
    parts = np.split(advantages, ends)
    return [part[:, : mask.shape[1]] for part, (_, _, mask) in zip(parts, batches, strict=True)]


def in_groups_of(size: int, scores: np.ndarray) -> Rows:
    """Return completions of one token, `size` for each prompt."""
    return scores, np.arange(len(scores)) // size, np.ones((len(scores), 1), bool)


def verl_cases(dtype: str, *functions: str) -> list[tuple[Case, str, Arrays, Arrays]]:
    """Return (case, set, inputs, outputs) of the given functions; masks as booleans, prompts numbered."""
    cases, arrays = load("verl")
    found = []
    for case in cases:
        if case["function"] in functions and case["id"].startswith(f"adv/{dtype[0]}{dtype[-2:]}/"):
            inputs = {name: arrays[key] for name, key in case["inputs"].items()}
            inputs["response_mask"] = inputs["response_mask"] > 0
            if "index" in inputs:
                inputs["index"] = np.unique(inputs["index"], return_inverse=True)[1].astype(np.int32)
            outputs = {name: arrays[key] for name, key in case["outputs"].items()}
            found.append((case, case["id"].split("/")[2], inputs, outputs))
    assert found
    return found
