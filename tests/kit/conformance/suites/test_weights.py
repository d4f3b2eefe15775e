"""A model whose logits and branches begin at zero, as in nanochat, is not taken for one that is broken."""

from __future__ import annotations

import attrs
import jax
import jax.numpy as jnp
import pytest
from flax import nnx

import dovetail
from dovetail.registry import Component, Origin
from dovetail_kit.conformance.check import checks
from dovetail_kit.conformance.subject import Subject
from dovetail_kit.conformance.suites.models import TINY
from dovetail_kit.conformance.verdict import judge

ZERO = ("unembedding", "out", "down")


@attrs.frozen(kw_only=True)
class BeginsAtZero:
    """The built-in model, with a head of its own and the last matrix of each branch at zero."""

    def make(self, vocab_size, *, rngs, place):
        model = dovetail.get("model", "decoder").bind(**TINY, tied=False).make(vocab_size, rngs=rngs, place=place)

        def begun(path, leaf):
            return jnp.zeros_like(leaf) if any(f"'{name}'" in jax.tree_util.keystr(path) for name in ZERO) else leaf

        state = nnx.to_pure_dict(nnx.state(model, nnx.Param))
        nnx.update(model, jax.tree.map_with_path(begun, state))
        return model


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "outcome"), [("every_parameter_learns", "passed"), ("logits_in_full_precision", "skipped")]
)
def test_a_model_that_begins_at_zero(name, outcome):
    component = Component(kind="model", name="zero", target=BeginsAtZero, origin=Origin("acme", "0", __name__))
    (check,) = (each for each in checks("model") if each.name == name)
    verdict = judge(check, Subject(component))
    assert verdict.outcome == outcome, verdict
