"""Calling a correction as the engine does."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from tests.loss.batch import Batch, select

import dovetail
from dovetail.train.parts import split_metrics


def correct(name: str, fields: Batch, **params: Any) -> tuple[jax.Array, jax.Array, dict[str, jax.Array]]:
    """Return the weights, the kept mask and the metrics."""
    component = dovetail.get("correction", name)
    result = component.bind(**params)(*map(jnp.asarray, select(component, fields).values()))
    (weights, kept), metrics = split_metrics(result)
    return weights, kept, metrics
