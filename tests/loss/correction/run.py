"""Calling a correction as the engine does."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from tests.loss.batch import Batch, select

import dovetail
from dovetail.step.mismatch import corrected, effective_sample_size, mismatch
from dovetail.training.metrics import means


def correct(name: str, fields: Batch, **params: Any) -> tuple[jax.Array, jax.Array]:
    """Return the weights and the kept mask."""
    component = dovetail.get("correction", name)
    return component.bind(**params)(*map(jnp.asarray, select(component, fields).values()))


def measured(fields: Batch, weights: Any) -> dict[str, float]:
    """Return the metrics that the engine logs about the sampler and about the corrections' weights."""
    arrays = {name: jnp.asarray(fields[name]) for name in ("old_logps", "rollout_logps", "mask")}
    apart = means(mismatch(*arrays.values()))
    apart["mismatch/effective_sample_size"] = effective_sample_size(apart)
    found = apart | means(corrected(jnp.asarray(weights), arrays["mask"]))
    return {name.partition("/")[2] if name.startswith("mismatch") else name: value for name, value in found.items()}
