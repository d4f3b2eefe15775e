"""verl 0.9.1's cases, and the translation of its terms to Dovetail's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.golden import load

CASES, ARRAYS = load("verl")

DTYPES = {"f32": "float32", "f64": "float64"}


def cases(kind: str, *functions: str) -> list[Any]:
    """Return the cases of a kind, except those in which verl raises an error."""
    found = [c for c in CASES if c["kind"] == kind and (not functions or c["function"] in functions)]
    return [pytest.param(c, id=c["id"]) for c in found if "error" not in c]


def inputs(case: dict[str, Any], **names: str) -> dict[str, np.ndarray]:
    """Return the inputs that a case has among `names`, which maps our field to verl's argument."""
    arrays = {ours: ARRAYS[case["inputs"][theirs]] for ours, theirs in names.items() if theirs in case["inputs"]}
    return {name: value.astype(bool) if name == "mask" else value for name, value in arrays.items()}


def clamp(kl: str) -> dict[str, Any]:
    """Return the settings with which an estimator equals verl's, whose k3 is clipped to ±10 nats."""
    return {"clamp": 10.0} if kl.removesuffix("+") in ("k3", "low_var_kl") else {}


def aggregation(mode: str, mask: np.ndarray, info: dict[str, Any]) -> dict[str, Any]:
    """Translate verl's mode; with global counts it computes one worker's share, whose mean over workers is the loss."""
    lengths = mask.sum(-1)
    workers = info.get("dp_size") or 1
    counts = {"token-mean": (lengths.sum(), info.get("batch_num_tokens")), "token-sum": (1, None)}
    ours, theirs = counts.get(mode, ((lengths > 0).sum(), info.get("global_batch_size")))
    normalizer = {"normalizer": float(info.get("loss_scale_factor") or mask.shape[1])}
    return {
        "loss_agg": "sequence_mean_token_scale" if mode == "seq-mean-token-sum-norm" else mode,
        "loss_agg_params": normalizer if mode == "seq-mean-token-sum-norm" else {},
        "scale": workers * float(ours) / (theirs or float(ours) or 1.0),
        "length_epsilon": 1e-8 if mode == "seq-mean-token-mean" else 0.0,
    }
