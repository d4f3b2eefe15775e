"""Parts call components with the fields that they read."""

from __future__ import annotations

import inspect
from typing import Any

import attrs
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dovetail.errors import PluginError
from dovetail.registry import Component, Origin
from dovetail.step.parts import Part, same_form


@attrs.frozen(kw_only=True)
class Running:
    """An estimator whose `update` has its parameters in an order of its own."""

    def init(self, roles: int) -> Any:
        return jnp.zeros(())

    def __call__(self, scores: Any, state: Any, mask: Any) -> Any:
        return scores[:, None] - state

    def update(self, mask: Any, state: Any, scores: Any) -> Any:
        return 0.5 * state + 0.5 * jnp.mean(scores)


@attrs.frozen(kw_only=True)
class Growing:
    """An estimator whose `update` returns what it is told to."""

    after: Any

    def init(self, roles: int) -> Any:
        return {"mean": jnp.zeros(())}

    def __call__(self, scores: Any, state: Any) -> Any:
        return scores[:, None] - state["mean"]

    def update(self, scores: Any, state: Any) -> Any:
        return self.after


@pytest.mark.parametrize(
    ("after", "said"),
    [
        ({"mean": jnp.zeros(1, jnp.int32)}, r"state\['mean'\] int32 \(1,\), which was float32 \(\) before"),
        ({"mean": jnp.zeros((), jnp.int32)}, r"state\['mean'\] int32 \(\), which was float32 \(\) before"),
        ({"mean": np.zeros(64)}, r"state\['mean'\] float64 \(64,\), which was float32 \(\) before"),
        ({"mean": jnp.zeros(64)}, r"state\['mean'\] float32 \(64,\), which was float32 \(\) before"),
        (jnp.zeros(64), r"state\['mean'\] missing, which was float32 \(\) before"),
        ({"mean": jnp.zeros(()), "n": jnp.ones(2)}, r"state\['n'\] float32 \(2,\), which was missing before"),
    ],
)
def test_a_next_state_of_another_form_is_refused_when_the_step_is_traced(after, said):
    component = Component(kind="advantage", name="growing", target=Growing, origin=Origin("acme", "1.2", __name__))
    part = Part(role="advantage", label="growing", component=component, statics={"after": after}, floats={})
    line = inspect.getsourcelines(Growing.update)[1]
    with pytest.raises(
        PluginError, match=rf"^advantage\.growing of acme 1\.2 .* from `update` {said}; .* \[.*test_parts\.py:{line}\]"
    ):
        jax.jit(lambda state: part.next_state({"scores": jnp.ones(64), "state": state}, {}))(Growing(after=0).init(1))


def forgetful(scores):
    """A function that ends without `return`."""
    scores.mean()


@pytest.mark.parametrize("kind", ["policy_loss", "lr_schedule", "field"])
def test_a_result_of_none_is_said_to_be_none(kind):
    component = Component(kind=kind, name="forgetful", target=forgetful, origin=Origin("acme", "1.2", __name__))
    part = Part(role=kind, label=kind, component=component, statics={}, floats={})
    said = rf"^{kind}\.forgetful of acme 1\.2 .* returned None; .* \[.*test_parts\.py:\d+\]$"
    with pytest.raises(PluginError, match=said):
        part({"scores": jnp.ones(3)}, {})


def test_a_state_of_numbers_may_become_one_of_arrays():
    """A controller begins with the number of a config, and continues with an array of the device."""
    component = Component(kind="kl_controller", name="x", target=Growing, origin=Origin("acme", "1.2", __name__))
    assert same_form(component, {"coef": 0.1, "n": 3}, {"coef": jnp.ones(()), "n": np.int64(4)}, "update")["n"] == 4


def test_update_gets_its_fields_by_name():
    component = Component(kind="advantage", name="running", target=Running, origin=Origin("acme", "0", __name__))
    part = Part(role="advantage", label="running", component=component, statics={}, floats={})
    fields = {"scores": jnp.array([1.0, 3.0]), "state": jnp.float32(4.0), "mask": jnp.ones((2, 1), bool)}
    assert part.next_state(fields, {}) == 3.0
