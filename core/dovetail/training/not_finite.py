"""Says where to look if a loss or a gradient is not finite."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Final

import jax.numpy as jnp
import numpy as np

from dovetail.plan.roles import CRITIC, POLICY
from dovetail.registry import Component
from dovetail.step.algorithm import Algorithm

USUAL: Final = "A lower learning rate or max_grad_norm is the usual cure"
NO_RATE: Final = "No update came before it, so the learning rate is not the cause"


def cure(algorithm: Algorithm, metric: str, metrics: Mapping[str, float], batch: Mapping[str, np.ndarray]) -> str:
    """Return where to look if `metric` is not finite in the first step of reinforcement learning.

    A learning rate can be the cause only if the step has several updates. If it has one, the cause is in the batch, or
    in a term of the loss: of the terms, those whose own mean is not finite, if there are such.
    """
    sizes, mask = algorithm.sizes, batch["mask"]
    if sizes.epochs > 1 or len(mask) > sizes.mini_batch_size:
        return USUAL
    if fields := [f"'{name}'{_writers(algorithm, name)}" for name, array in batch.items() if _is_bad(array, mask)]:
        return f"{NO_RATE}: the batch has values that are not finite already, in {', '.join(fields)}"
    terms = algorithm.terms.get(CRITIC if metric.startswith(f"{CRITIC}/") else POLICY, ())
    own = [term for term in terms if not math.isfinite(metrics.get(f"{term.part.label}/mean", 0.0))]
    parts = [term.part.component for term in own or terms]
    return f"{NO_RATE}: look at {_named(parts)}"


def _writers(algorithm: Algorithm, field: str) -> str:
    parts = [part for stages in algorithm.parts.values() for here in stages.values() for part in here]
    components = {part.component.label: part.component for part in parts if field in part.writes}
    return f" (of {_named(components.values())})" if components else ""


def _named(components: Iterable[Component]) -> str:
    return " and ".join(f"{each.label} of {each.origin}{each.place}" for each in components)


def _is_bad(array: np.ndarray, mask: np.ndarray) -> bool:
    """Whether a field has a value that is not finite where there are policy tokens."""
    if not jnp.issubdtype(array.dtype, jnp.floating) or array.shape[:1] != mask.shape[:1]:
        return False
    there = array[mask] if array.shape[:2] == mask.shape else array[mask.any(axis=1)]
    return not np.isfinite(there).all()
