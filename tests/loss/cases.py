"""A golden case of a loss, translated to Dovetail's terms, and the check that the components reproduce it.

The other libraries aggregate inside their losses. Here a case is computed as the engine does it: per-token loss, times
the importance weights, plus the KL term, times the aggregation's weights for the whole mini-batch.
"""

from __future__ import annotations

import contextlib
from typing import Any

import attrs
import jax
import jax.numpy as jnp
import numpy as np

import dovetail

TOLERANCE = {"float64": 1e-9, "float32": 1e-5}
DIFFERENTIABLE = {"policy_loss": "logps", "value_loss": "values", "kl": "logps"}


@attrs.frozen(kw_only=True)
class Case:
    """One fact.

    Attributes:
        name: the origin of the case.
        dtype: the type of the floating fields; it determines the tolerance.
        kind: kind of the component under test.
        component: its name.
        params: its hyperparameters.
        fields: the fields that it reads, by name, and `is_weights` and `ref_logps` if they are used.
        loss_agg: aggregation; None compares per token (and the gradient of the sum).
        loss_agg_params: hyperparameters of the aggregation.
        scale: factor of the loss, if the other library computes one worker's share of a larger batch.
        length_epsilon: the number that the other library adds to a completion's length before dividing by it.
        rows: the rows of the mini-batch that form this micro-batch; None for all.
        kl: name, hyperparameters and coefficient of the KL term in the loss.
        value: expected loss, or expected values per token.
        gradient: expected gradient by the differentiable field.
        metrics: expected masked means of the component's metrics.
        tolerance: the tolerance of the comparison; None uses that of `dtype`.
    """

    name: str
    dtype: str
    kind: str
    component: str
    params: dict[str, Any] = attrs.field(factory=dict)
    fields: dict[str, np.ndarray]
    loss_agg: str | None = None
    loss_agg_params: dict[str, Any] = attrs.field(factory=dict)
    scale: float = 1.0
    length_epsilon: float = 0.0
    rows: tuple[int, int] | None = None
    kl: tuple[str, dict[str, Any], float] | None = None
    value: Any
    gradient: Any = None
    metrics: dict[str, float] = attrs.field(factory=dict)
    tolerance: float | None = None


def check(case: Case) -> None:
    """Compute the case and compare value, gradient and metrics."""
    value, gradient, metrics = compute(case)
    tolerance = case.tolerance or TOLERANCE[case.dtype]
    np.testing.assert_allclose(value, case.value, rtol=tolerance, atol=tolerance, err_msg="value")
    if case.gradient is not None:
        np.testing.assert_allclose(gradient, case.gradient, rtol=tolerance, atol=tolerance, err_msg="gradient")
    for name, expected in case.metrics.items():
        np.testing.assert_allclose(metrics[name], expected, rtol=1e-5, atol=1e-5, err_msg=name)


def precision(dtype: str) -> contextlib.AbstractContextManager[Any]:
    """Enable float64 in JAX if a case needs it."""
    return jax.enable_x64(True) if dtype == "float64" else contextlib.nullcontext()


def compute(case: Case) -> tuple[Any, Any, dict[str, float]]:
    """Return the value (summed up where there is an aggregation), its gradient, and the metrics' masked means."""
    with precision(case.dtype):
        value, gradient, metrics = _compute(case)
        return np.asarray(value), None if gradient is None else np.asarray(gradient), metrics


def _compute(case: Case) -> tuple[Any, Any, dict[str, float]]:
    fields = {name: _array(value, case.dtype) for name, value in case.fields.items()}
    weights = _weights(case, fields) if case.loss_agg else jnp.ones_like(fields["logps"])
    start, stop = case.rows or (0, len(weights))
    fields, weights = {name: value[start:stop] for name, value in fields.items()}, weights[start:stop]
    if case.kind == "loss_agg":
        return jnp.sum(jnp.where(fields["mask"], weights * fields["loss"], 0.0)), None, {}
    corrected = jnp.where(fields["mask"], fields["is_weights"], 0.0) if "is_weights" in fields else 1.0
    value, gradient, metrics = pull(case.kind, case.component, fields, case.params, weights * corrected)
    value = jnp.sum(value * weights * corrected) if case.loss_agg else value
    if case.kl:
        name, params, coefficient = case.kl
        divergence, kl_gradient, _ = pull("kl", name, fields, params, coefficient * weights)
        value += jnp.sum(coefficient * weights * divergence)
        gradient += kl_gradient
    return value, gradient, {key: _masked_mean(metric, fields["mask"]) for key, metric in metrics.items()}


def pull(
    kind: str, name: str, fields: dict[str, jax.Array], params: dict[str, Any], cotangent: jax.Array
) -> tuple[jax.Array, jax.Array, dict[str, jax.Array]]:
    """Return a component's values per token, the gradient of their sum weighted by `cotangent`, and its metrics."""
    component = dovetail.get(kind, name)
    bound, position = component.bind(**params), component.reads.index(DIFFERENTIABLE[kind])
    arguments = [fields[read] for read in component.reads]

    # Not compiled: few cases would share a program, and compiling one takes ten times as long as its operations.
    def total(variable: jax.Array) -> tuple[jax.Array, Any]:
        result = bound(*arguments[:position], variable, *arguments[position + 1 :])
        per_token, metrics = result if isinstance(result, tuple) else (result, {})
        return jnp.sum(cotangent * per_token), (per_token, metrics)

    gradient, (per_token, metrics) = jax.grad(total, has_aux=True)(arguments[position])
    return per_token, gradient, metrics


def weights_of(case: Case) -> np.ndarray:
    """Return the weights of the tokens under the case's aggregation."""
    with precision(case.dtype):
        return np.asarray(_weights(case, {name: _array(value, case.dtype) for name, value in case.fields.items()}))


def _weights(case: Case, fields: dict[str, jax.Array]) -> jax.Array:
    assert case.loss_agg
    component = dovetail.get("loss_agg", case.loss_agg)
    weights = component.bind(**case.loss_agg_params)(*(fields[read] for read in component.reads))
    lengths = jnp.sum(fields["mask"], axis=-1, keepdims=True, dtype=weights.dtype)
    shrink = lengths / jnp.maximum(lengths + case.length_epsilon, 1e-30)
    return case.scale * shrink * weights


def _array(value: np.ndarray, dtype: str) -> jax.Array:
    floating = np.issubdtype(np.asarray(value).dtype, np.floating)
    return jnp.asarray(value, dtype=dtype if floating else None)


def _masked_mean(metric: jax.Array, mask: jax.Array) -> float:
    return float(jnp.sum(jnp.where(mask, metric, 0.0)) / jnp.maximum(jnp.sum(mask, dtype=metric.dtype), 1.0))
