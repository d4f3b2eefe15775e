"""What counts for a model: numbers of its logits do, too."""

from __future__ import annotations

from typing import Annotated

import attrs
import jax.numpy as jnp
import pytest
from annotated_types import Gt
from tests.kit.conformance.mutants_trees import _Saves

from dovetail.registry import Component, Origin
from dovetail_kit.conformance.check import checks
from dovetail_kit.conformance.subject import Subject
from dovetail_kit.conformance.verdict import judge


@attrs.frozen(kw_only=True)
class Capped(_Saves):
    """A decoder whose logits are bounded."""

    cap: Annotated[float, Gt(0)] = 30.0

    def make(self, vocab_size, *, rngs, place):
        made, cap = super().make(vocab_size, rngs=rngs, place=place), self.cap

        def logits(model, hidden):
            return cap * jnp.tanh(super(type(model), model).logits(hidden) / cap)

        made.__class__ = type("Capped", (type(made),), {"logits": logits})
        return made


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["every_number_counts", "exports_in_the_type_asked_for", "exports_every_parameter", "every_parameter_learns"],
)
def test_a_model_with_bounded_logits_passes(name):
    component = Component(kind="model", name="capped", target=Capped, origin=Origin("acme", "0", __name__))
    (check,) = (each for each in checks("model") if each.name == name)
    verdict = judge(check, Subject(component))
    assert verdict.outcome == "passed", verdict
