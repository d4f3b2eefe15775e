"""Properties of every loss term: padding, order, splits and values outside the mask do not change the result."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.sampled import sampled

import dovetail

NAMES = dovetail.names("loss_term")
LENGTHS = (7, 5, 0, 1, 3, 6, 2, 4)
GROUPS = (5, -3, 5, 40, -3, 5, 40, 5)
WHOLE = [np.flatnonzero(np.array(GROUPS) == group) for group in (5, -3, 40)]
LIVE = {"nll": "demo_logps", "gkd": "jensen_shannon"}
"""The differentiable field of a term, if it is not `logps`."""


def fields(name: str, dtype: Any = np.float32) -> dict[str, np.ndarray]:
    """A batch with padding, a hole, an empty row, and groups of 4, 2 and 2 that are interleaved."""
    rng = np.random.default_rng(1)
    mask = np.arange(max(LENGTHS)) < np.array(LENGTHS)[:, None]
    mask[1, 2] = False
    logps = -np.abs(rng.normal(size=mask.shape))
    known = {
        "mask": mask,
        "demo_mask": mask,
        "observed": mask,
        "group_ids": np.array(GROUPS, np.int32),
        "scores": rng.normal(size=len(LENGTHS)).astype(dtype),
        "logps": logps.astype(dtype),
        "demo_logps": logps.astype(dtype),
        "ref_logps": (logps + rng.normal(scale=0.3, size=mask.shape)).astype(dtype),
        "teacher_logps": (logps + rng.normal(scale=0.3, size=mask.shape)).astype(dtype),
        "jensen_shannon": np.abs(rng.normal(size=mask.shape)).astype(dtype),
    }
    missing = [read for read in dovetail.get("loss_term", name).reads if read not in known]
    assert not missing, f"loss_term.{name} reads {missing}: add them here"
    return known


def value_and_gradient(name: str, known: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return the loss per token, and the gradient of its sum with respect to the term's differentiable field."""
    (_, per_token), gradient = compiled(name)(known[LIVE.get(name, "logps")], known)
    return np.asarray(per_token), np.asarray(gradient)


@functools.cache
def compiled(name: str) -> Any:
    """Return what `value_and_gradient` computes with a term, so that its programs are compiled once for all tests."""
    component, live = dovetail.get("loss_term", name), LIVE.get(name, "logps")

    def total(moved: Any, known: dict[str, Any]) -> Any:
        given = known | {live: moved}
        found = component(*(given[read] for read in component.reads))
        per_token = found[0] if isinstance(found, tuple) else found
        return jnp.sum(per_token), per_token

    return jax.jit(jax.value_and_grad(total, has_aux=True))


def rows(known: dict[str, np.ndarray], chosen: Any) -> dict[str, np.ndarray]:
    return {key: value[chosen] for key, value in known.items()}


@pytest.mark.parametrize("name", sampled(NAMES, every=4))
def test_padding_changes_nothing(name: str) -> None:
    known = fields(name)
    wide = {
        key: np.pad(value, [(0, 2), (0, 3)], constant_values=np.nan if value.dtype.kind == "f" else 0)
        if value.ndim == 2
        else np.pad(value, (0, 2))
        for key, value in known.items()
    }
    for ours, theirs in zip(value_and_gradient(name, wide), value_and_gradient(name, known), strict=True):
        np.testing.assert_allclose(ours[:-2, :-3], theirs, rtol=1e-6, atol=1e-7)
        assert not ours[-2:].any()
        assert not ours[:, -3:].any()


@pytest.mark.parametrize("garbage", [np.nan, np.inf, -1e30])
@pytest.mark.parametrize("name", sampled(NAMES, every=4))
def test_nothing_outside_the_mask_is_seen(name: str, garbage: float) -> None:
    known = fields(name)
    dirty = {
        key: np.where(known["mask"] if value.ndim == 2 else known["mask"].any(1), value, value.dtype.type(garbage))
        if value.dtype.kind == "f"
        else value
        for key, value in known.items()
    }
    for ours, theirs in zip(value_and_gradient(name, dirty), value_and_gradient(name, known), strict=True):
        np.testing.assert_array_equal(ours, theirs)
        assert not ours[~known["mask"]].any()


@pytest.mark.parametrize("name", sampled(NAMES, every=4))
def test_the_order_of_the_rows_means_nothing(name: str) -> None:
    known, order = fields(name), np.array([3, 0, 5, 7, 2, 4, 6, 1])
    for ours, theirs in zip(value_and_gradient(name, rows(known, order)), value_and_gradient(name, known), strict=True):
        np.testing.assert_allclose(ours, theirs[order], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", sampled(NAMES, every=4))
def test_micro_batches_of_whole_groups_add_up(name: str) -> None:
    known = fields(name)
    whole = value_and_gradient(name, known)
    together = dovetail.get("loss_term", name).declares.get("whole_groups")
    for chosen in WHOLE if together else np.arange(len(LENGTHS))[:, None]:
        for part, expected in zip(value_and_gradient(name, rows(known, chosen)), whole, strict=True):
            np.testing.assert_allclose(part, expected[chosen], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "name", [name for name in NAMES if not dovetail.get("loss_term", name).declares.get("surrogate")]
)
def test_the_gradient_is_that_of_the_value(name: str) -> None:
    """Checked in float64 by central differences; `reverse_kl` defines its own gradient, which its test checks."""
    live = LIVE.get(name, "logps")
    with jax.enable_x64(True):
        known = fields(name, np.float64)
        _, gradient = value_and_gradient(name, known)
        assert gradient.dtype == np.float64
        for row, token in ((0, 3), (1, 0), (3, 0), (6, 1), (2, 0)):
            step = np.zeros_like(known[live])
            step[row, token] = 1e-6
            above, below = (value_and_gradient(name, known | {live: known[live] + s * step})[0] for s in (1, -1))
            slope = (above.sum() - below.sum()) / 2e-6
            np.testing.assert_allclose(gradient[row, token], slope, rtol=1e-6, atol=1e-8)
