"""Parts call components with the fields that they read."""

from __future__ import annotations

from typing import Any

import attrs
import jax.numpy as jnp

from dovetail.registry import Component, Origin
from dovetail.step.parts import Part


@attrs.frozen(kw_only=True)
class Running:
    """An estimator whose `update` has its parameters in an order of its own."""

    def init(self, roles: int) -> Any:
        return jnp.zeros(())

    def __call__(self, scores: Any, state: Any, mask: Any) -> Any:
        return scores[:, None] - state

    def update(self, mask: Any, state: Any, scores: Any) -> Any:
        return 0.5 * state + 0.5 * jnp.mean(scores)


def test_update_gets_its_fields_by_name():
    component = Component(kind="advantage", name="running", target=Running, origin=Origin("acme", "0", __name__))
    part = Part(role="advantage", label="running", component=component, statics={}, floats={})
    fields = {"scores": jnp.array([1.0, 3.0]), "state": jnp.float32(4.0), "mask": jnp.ones((2, 1), bool)}
    assert part.next_state(fields, {}) == 3.0
