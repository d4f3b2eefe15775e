"""Micro-batches add up to the mini-batch: with weights computed on it, no split changes the gradient of a model."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dovetail
from dovetail_kit.conformance.batch import ROWS, TOKENS, field, known_fields, take_rows
from dovetail_kit.conformance.subject import Subject

MOVED = {"policy_loss": "logps", "value_loss": "values"}
LOSSES = [
    (kind, name)
    for kind, moved in MOVED.items()
    for name in dovetail.names(kind)
    if moved in dovetail.get(kind, name).reads
]
CASES = [
    *((*loss, "sequence_mean_token_mean") for loss in LOSSES),
    *(("policy_loss", "ppo", name) for name in dovetail.names("loss_agg")),
]


@pytest.mark.parametrize(("kind", "name", "aggregation"), CASES)
def test_a_split_changes_nothing_but_rounding(kind, name, aggregation):
    loss, weigh = Subject(dovetail.get(kind, name)), Subject(dovetail.get("loss_agg", aggregation))
    known = known_fields()
    fields = {read: field(read, known) for read in {*loss.component.reads, *weigh.component.reads, "mask"}}
    moved = MOVED[kind]

    def gradient(batch, weights):
        """Return the gradient of one parameter per position, shared by all rows like a model."""

        def total(parameter):
            given = batch | {moved: jnp.asarray(batch[moved]) + parameter}
            value = loss.bind()(*(given[read] for read in loss.component.reads))
            return jnp.sum(weights * (value[0] if isinstance(value, tuple) else value))

        return jax.grad(total)(jnp.zeros((1, TOKENS), weights.dtype))

    for dtype, tolerance in ((np.float32, 1e-6), (np.float64, 1e-12)):
        with jax.enable_x64(dtype is np.float64):
            whole = {
                key: value.astype(dtype) if value.dtype == np.float32 else value
                for key, value in fields.items()
                if isinstance(value, np.ndarray)
            }
            constants = {key: value for key, value in fields.items() if key not in whole}
            made = weigh.bind()(*((whole | constants)[read] for read in weigh.component.reads))
            weights = np.asarray(made[0] if isinstance(made, tuple) else made).astype(dtype)
            expected = gradient(whole | constants, weights)
            assert expected.dtype == dtype
            for size in (2, 3):  # 3 leaves a ragged last one
                rows = [np.arange(start, min(start + size, ROWS)) for start in range(0, ROWS, size)]
                found = sum(gradient(take_rows(whole, r) | constants, weights[r]) for r in rows)
                np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
