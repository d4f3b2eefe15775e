"""What holds for every selection, whoever registered it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.loss.batch import Batch, float_params, make_batch, select, token_fields

import dovetail

NAMES = dovetail.names("selection")
every_selection = pytest.mark.parametrize("name", NAMES)


def batch(seed: int = 0) -> Batch:
    fields = make_batch(seed)
    truncated = np.array([True, False, False, False, True, False])
    return fields | {"old_entropy": fields["entropy"], "truncated": truncated}


def ask(name: str, fields: Batch, **params: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the weights and the mask to keep, as the engine reads them."""
    component = dovetail.get("selection", name)
    found = component.bind(**params)(*map(jnp.asarray, select(component, fields).values()))
    weights, kept = found if isinstance(found, tuple) else (found, fields["mask"])
    return np.asarray(weights), np.asarray(kept)


def close(actual: Any, expected: Any) -> None:
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(one.astype(float), other.astype(float), rtol=1e-5, atol=1e-6)


@every_selection
def test_shapes_and_what_is_outside_the_mask(name: str) -> None:
    fields = batch()
    weights, kept = ask(name, fields)
    assert weights.shape == kept.shape == fields["mask"].shape
    assert weights.dtype in (bool, np.float32)
    assert kept.dtype == bool
    assert not (kept & ~fields["mask"]).any()
    assert (weights[~fields["mask"]] == 0).all()
    assert np.isfinite(weights).all()
    assert (weights != 0).any()


@every_selection
@pytest.mark.parametrize("garbage", [np.nan, np.inf, 1e30, -1e30])
def test_garbage_outside_the_mask_changes_nothing(name: str, garbage: float) -> None:
    fields = batch()
    spoilt = {key: np.where(fields["mask"], fields[key], np.float32(garbage)) for key in token_fields(fields)}
    close(ask(name, fields | spoilt), ask(name, fields))


@every_selection
def test_padding_and_empty_rows_change_nothing(name: str) -> None:
    fields = batch()
    width = fields["mask"].shape[1]

    def padded(value: np.ndarray) -> np.ndarray:
        return np.pad(value, [(0, 2), (0, 3)][: value.ndim])

    weights, kept = ask(name, {key: padded(value) for key, value in fields.items()})
    close((weights[:-2, :width], kept[:-2, :width]), ask(name, fields))


@every_selection
def test_rows_may_come_in_any_order_and_groups_have_any_label(name: str) -> None:
    fields = batch()
    order = np.array([3, 0, 5, 2, 4, 1])
    shuffled = {key: value[order] for key, value in fields.items()}
    expected = tuple(each[order] for each in ask(name, fields))
    close(ask(name, shuffled | {"group_ids": 9 - 5 * shuffled["group_ids"]}), expected)


@every_selection
def test_an_all_masked_batch_selects_nothing(name: str) -> None:
    fields = batch()
    weights, kept = ask(name, fields | {"mask": np.zeros_like(fields["mask"])})
    assert (weights == 0).all()
    assert not kept.any()


@every_selection
def test_jit_equals_eager_and_numbers_do_not_recompile(name: str) -> None:
    component = dovetail.get("selection", name)
    traces = []

    def counted(arguments: list[Any], params: dict[str, Any]) -> Any:
        traces.append(name)
        return component.bind(**params)(*arguments)

    compiled, params = jax.jit(counted), float_params(component)

    def arguments(seed: int) -> list[Any]:
        return [jnp.asarray(value) for value in select(component, batch(seed)).values()]

    expected = jax.tree.leaves(component.bind(**params)(*arguments(0)))
    close(map(np.asarray, jax.tree.leaves(compiled(arguments(0), params))), map(np.asarray, expected))
    compiled(arguments(1), {key: value * np.float32(0.9) for key, value in params.items()})
    assert len(traces) == 1


@every_selection
def test_it_says_what_it_is(name: str) -> None:
    assert dovetail.get("selection", name).summary.endswith(".")
