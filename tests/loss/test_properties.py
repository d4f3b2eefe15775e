"""What holds for every loss, aggregation, KL estimator and controller, whoever registered it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.loss.batch import Batch, float_params, make_batch, select, token_fields

import dovetail
from dovetail.train.parts import masked_sum

DIFFERENTIABLE = ("logps", "values", "full_kl")

LOSSES = [(kind, name) for kind in ("policy_loss", "value_loss") for name in dovetail.names(kind)]
AGGREGATIONS = dovetail.names("loss_agg")
KL = dovetail.names("kl")
CONTROLLERS = [(kind, name) for kind in ("kl_controller", "entropy_controller") for name in dovetail.names(kind)]

every_loss = pytest.mark.parametrize(("kind", "name"), LOSSES)
every_aggregation = pytest.mark.parametrize("name", AGGREGATIONS)
every_kl = pytest.mark.parametrize("name", KL)
every_controller = pytest.mark.parametrize(("kind", "name"), CONTROLLERS)
garbage = pytest.mark.parametrize("garbage", [np.nan, np.inf, 1e30, -1e30])


def run(
    kind: str, name: str, fields: Batch, params: dict[str, Any] | None = None
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Call a component on what it reads; return its value and its metrics."""
    component = dovetail.get(kind, name)
    params = float_params(component) if params is None else params
    result = component.bind(**params)(*map(jnp.asarray, select(component, fields).values()))
    return result if isinstance(result, tuple) else (result, {})


def variable_of(kind: str, name: str) -> str:
    """Return the field through which a component learns."""
    (variable,) = (read for read in dovetail.get(kind, name).reads if read in DIFFERENTIABLE)
    return variable


def pull(
    kind: str, name: str, fields: Batch, weights: Any, params: dict[str, Any] | None = None
) -> tuple[jax.Array, jax.Array]:
    """Return ∑ w·loss as the engine sums it up, and its gradient by the differentiable field."""
    variable = variable_of(kind, name)

    def total(value: jax.Array) -> jax.Array:
        per_token, _ = run(kind, name, fields | {variable: value}, params)
        return masked_sum(weights, per_token)

    return jax.value_and_grad(total)(jnp.asarray(fields[variable]))


def check_compiled(kind: str, name: str, function: Callable[[Batch, dict[str, Any]], Any]) -> None:
    """Compare with eager execution, and count how often it is traced as data and hyperparameters change."""
    traces = []

    def counted(fields: Batch, params: dict[str, Any]) -> Any:
        traces.append(name)
        return function(fields, params)

    compiled = jax.jit(counted)
    fields, params = make_batch(), float_params(dovetail.get(kind, name))
    expected = jax.tree.leaves(function(fields, params))
    for actual, value in zip(jax.tree.leaves(compiled(fields, params)), expected, strict=True):
        close(actual, value, 1e-5)
    compiled(make_batch(seed=1), {key: value * np.float32(1.5) for key, value in params.items()})
    assert len(traces) == 1


def spoil(fields: Batch, value: float) -> Batch:
    """Write `value` into every floating field, outside the mask."""
    spoilt = {name: np.where(fields["mask"], fields[name], np.float32(value)) for name in token_fields(fields)}
    return fields | spoilt


def pad(fields: Batch, columns: int) -> Batch:
    """Add masked columns on the right, filled with NaN."""

    def padded(value: np.ndarray) -> np.ndarray:
        if value.ndim == 1:
            return value
        filling = np.full((len(value), columns), False if value.dtype == bool else np.nan, value.dtype)
        return np.concatenate([value, filling], axis=1)

    return {name: padded(value) for name, value in fields.items()}


def close(actual: Any, expected: Any, tolerance: float = 1e-6) -> None:
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


def weights_of(fields: Batch) -> np.ndarray:
    """Weights that differ from token to token, zero outside the mask."""
    return np.where(
        fields["mask"], np.linspace(0.5, 1.5, fields["mask"].size).reshape(fields["mask"].shape), 0.0
    ).astype(np.float32)


# --- policy and value losses


@every_loss
def test_a_loss_is_float32_per_token_and_zero_outside_the_mask(kind: str, name: str) -> None:
    fields = make_batch()
    loss, metrics = run(kind, name, fields)
    assert loss.shape == fields["mask"].shape
    assert loss.dtype == jnp.float32
    assert np.isfinite(loss).all()
    assert (np.asarray(loss)[~fields["mask"]] == 0).all()
    for key, metric in metrics.items():
        assert metric.shape in ((), fields["mask"].shape[:1], fields["mask"].shape), f"shape of the metric {key}"
        assert np.isfinite(metric).all(), key


@every_loss
def test_a_loss_learns_from_policy_tokens_only(kind: str, name: str) -> None:
    fields = make_batch()
    _, gradient = pull(kind, name, fields, weights_of(fields))
    assert np.isfinite(gradient).all()
    assert (np.asarray(gradient)[~fields["mask"]] == 0).all()
    assert (np.asarray(gradient)[fields["mask"]] != 0).any()


@every_loss
def test_jit_equals_eager_and_numbers_do_not_recompile(kind: str, name: str) -> None:
    check_compiled(kind, name, lambda fields, params: pull(kind, name, fields, weights_of(make_batch()), params))


@every_loss
def test_right_padding_changes_nothing(kind: str, name: str) -> None:
    fields = make_batch()
    width = fields["mask"].shape[1]
    loss, gradient = pull(kind, name, fields, weights_of(fields))
    weights = np.hstack([weights_of(fields), np.zeros((len(fields["mask"]), 3), np.float32)])
    padded_loss, padded_gradient = pull(kind, name, pad(fields, 3), weights)
    close(padded_loss, loss)
    close(padded_gradient[:, :width], gradient)
    assert (padded_gradient[:, width:] == 0).all()


@every_loss
def test_rows_are_independent_of_their_order(kind: str, name: str) -> None:
    fields = make_batch()
    order = np.array([3, 0, 5, 2, 4, 1])
    shuffled = {key: value[order] for key, value in fields.items()}
    close(run(kind, name, shuffled)[0], run(kind, name, fields)[0][order])


@every_loss
@garbage
def test_garbage_outside_the_mask_changes_neither_value_nor_gradient(kind: str, name: str, garbage: float) -> None:
    fields = make_batch()
    weights = weights_of(fields)
    for actual, expected in zip(
        pull(kind, name, spoil(fields, garbage), weights), pull(kind, name, fields, weights), strict=True
    ):
        close(actual, expected)
    spoilt_loss, spoilt_metrics = run(kind, name, spoil(fields, garbage))
    loss, metrics = run(kind, name, fields)
    close(spoilt_loss, loss)
    for key, metric in metrics.items():
        close(spoilt_metrics[key], metric)


@every_loss
def test_an_all_masked_batch_gives_zero(kind: str, name: str) -> None:
    fields = make_batch()
    fields = spoil(fields | {"mask": np.zeros_like(fields["mask"])}, np.nan)
    loss, metrics = run(kind, name, fields)
    _, gradient = pull(kind, name, fields, np.ones_like(fields["logps"]))
    assert (loss == 0).all()
    assert (gradient == 0).all()
    assert all(np.isfinite(metric).all() for metric in metrics.values())


@every_loss
@pytest.mark.parametrize("shift", [200.0, -200.0])
def test_far_apart_policies_stay_finite(kind: str, name: str, shift: float) -> None:
    fields = make_batch()
    variable = variable_of(kind, name)
    fields[variable] = fields[variable] + np.float32(shift)
    loss, gradient = pull(kind, name, fields, weights_of(fields))
    assert np.isfinite(loss)
    assert np.isfinite(gradient).all()


@every_loss
def test_bfloat16_in_float32_out(kind: str, name: str) -> None:
    fields = make_batch()
    half = fields | {key: fields[key].astype(jnp.bfloat16) for key in token_fields(fields)}
    loss, metrics = run(kind, name, half)
    assert loss.dtype == jnp.float32
    assert all(metric.dtype == jnp.float32 for metric in metrics.values())
    rounded = {key: value.astype(np.float32) if value.dtype == jnp.bfloat16 else value for key, value in half.items()}
    close(loss, run(kind, name, rounded)[0])


EVERY_LOSS_AND_EVERY_AGGREGATION = [
    *((kind, name, "sequence_mean_token_mean") for kind, name in LOSSES),
    *(("policy_loss", "ppo", aggregation) for aggregation in AGGREGATIONS),
]


@pytest.mark.parametrize(("kind", "name", "aggregation"), EVERY_LOSS_AND_EVERY_AGGREGATION)
def test_micro_batches_add_up_to_the_whole(kind: str, name: str, aggregation: str) -> None:
    fields = make_batch()
    weights, _ = run("loss_agg", aggregation, fields)
    rows = len(weights)

    def by_parameters(start: int, stop: int) -> jax.Array:
        # One parameter per position, shared by all rows, as a model's parameters are.
        micro = {key: value[start:stop] for key, value in fields.items()}
        return jnp.sum(pull(kind, name, micro, weights[start:stop])[1], axis=0)

    whole = by_parameters(0, rows)
    for size in (1, 2, 4):  # 4 leaves a ragged last micro-batch of 2
        pieces = [by_parameters(start, min(start + size, rows)) for start in range(0, rows, size)]
        close(sum(pieces[1:], pieces[0]), whole, 1e-5)


# --- aggregations


@every_aggregation
def test_weights_are_float32_and_zero_outside_the_mask(name: str) -> None:
    fields = make_batch()
    weights, _ = run("loss_agg", name, fields)
    assert weights.shape == fields["mask"].shape
    assert weights.dtype == jnp.float32
    assert (np.asarray(weights)[~fields["mask"]] == 0).all()
    assert (np.asarray(weights)[fields["mask"]] > 0).all()


@every_aggregation
def test_weights_of_an_all_masked_batch_are_zero(name: str) -> None:
    fields = make_batch()
    assert (run("loss_agg", name, fields | {"mask": np.zeros_like(fields["mask"])})[0] == 0).all()


@every_aggregation
def test_empty_rows_are_not_counted(name: str) -> None:
    fields = make_batch()
    kept = fields["mask"].any(-1)
    assert not kept.all()
    without = {key: value[kept] for key, value in fields.items()}
    close(run("loss_agg", name, without)[0], run("loss_agg", name, fields)[0][kept])


@every_aggregation
def test_weights_do_not_depend_on_the_padded_width(name: str) -> None:
    fields = make_batch()
    width = fields["mask"].shape[1]
    close(run("loss_agg", name, pad(fields, 5))[0][:, :width], run("loss_agg", name, fields)[0])


@every_aggregation
def test_weights_follow_their_rows(name: str) -> None:
    fields = make_batch()
    order = np.array([3, 0, 5, 2, 4, 1])
    shuffled = {key: value[order] for key, value in fields.items()}
    close(run("loss_agg", name, shuffled)[0], run("loss_agg", name, fields)[0][order])


@every_aggregation
def test_weights_under_jit_equal_eager_and_numbers_do_not_recompile(name: str) -> None:
    check_compiled("loss_agg", name, lambda fields, params: run("loss_agg", name, fields, params)[0])


# --- KL estimators


@every_kl
def test_kl_is_zero_between_equal_policies(name: str) -> None:
    fields = make_batch()
    estimate, _ = run("kl", name, fields | {"ref_logps": fields["logps"], "full_kl": 0 * fields["full_kl"]})
    assert estimate.shape == fields["mask"].shape
    assert estimate.dtype == jnp.float32
    assert (estimate == 0).all()


@every_kl
@garbage
def test_kl_ignores_garbage_in_positions_without_weight(name: str, garbage: float) -> None:
    fields = make_batch()
    weights = weights_of(fields)
    clean = pull("kl", name, fields, weights)
    variable = variable_of("kl", name)
    for spoilt in (spoil(fields, garbage), spoil(fields, garbage) | {variable: fields[variable]}):
        for actual, expected in zip(pull("kl", name, spoilt, weights), clean, strict=True):
            close(actual, expected)


@every_kl
@pytest.mark.parametrize("shift", [200.0, -200.0])
def test_kl_of_far_apart_policies_stays_finite(name: str, shift: float) -> None:
    fields = make_batch()
    fields["logps"] = fields["ref_logps"] + np.float32(shift)
    value, gradient = pull("kl", name, fields, weights_of(fields))
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()


@every_kl
def test_a_nan_that_counts_is_seen(name: str) -> None:
    fields = make_batch()
    fields[variable_of("kl", name)][0, 0] = np.nan
    assert np.isnan(pull("kl", name, fields, weights_of(fields))[0])


@every_kl
def test_kl_under_jit_equals_eager_and_numbers_do_not_recompile(name: str) -> None:
    check_compiled("kl", name, lambda fields, params: pull("kl", name, fields, weights_of(make_batch()), params))


@every_kl
def test_kl_of_bfloat16_is_float32(name: str) -> None:
    fields = make_batch()
    half = fields | {key: fields[key].astype(jnp.bfloat16) for key in ("logps", "ref_logps", "full_kl")}
    assert run("kl", name, half)[0].dtype == jnp.float32


# --- controllers


@every_controller
def test_a_controller_starts_at_the_coefficient(kind: str, name: str) -> None:
    controller: Any = dovetail.get(kind, name).bind()
    assert controller.coef(controller.init(0.25)) == 0.25


@every_controller
def test_a_controllers_state_is_a_dict_that_can_be_scanned_and_traced(kind: str, name: str) -> None:
    component = dovetail.get(kind, name)

    @jax.jit
    def run_scan(params: dict[str, Any], kls: jax.Array) -> tuple[dict[str, jax.Array], jax.Array]:
        controller: Any = component.bind(**params)

        def step(state: dict[str, jax.Array], kl: jax.Array) -> tuple[dict[str, jax.Array], jax.Array]:
            state = controller.update(state, kl, jnp.int32(64))
            return state, controller.coef(state)

        return jax.lax.scan(step, controller.init(0.1), kls)

    state, coefficients = run_scan(float_params(component), jnp.array([0.0, 0.5, 0.1]))
    assert all(isinstance(value, jax.Array) for value in state.values())
    controller: Any = component.bind(**float_params(component))
    expected = controller.init(0.1)
    for kl, coefficient in zip((0.0, 0.5, 0.1), coefficients, strict=True):
        expected = controller.update(expected, jnp.float32(kl), jnp.int32(64))
        close(coefficient, controller.coef(expected))
        assert coefficient.dtype == jnp.float32
