"""The alternatives that `benchmarks/choices.py` times compute the same."""

import importlib
from collections import defaultdict
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def choices(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    module = importlib.import_module("choices")
    monkeypatch.setattr(module, "ROWS", 2)
    monkeypatch.setattr(module, "VOCABULARY", 9000)
    return module


@pytest.mark.slow
def test_one_of_each_is_chosen(choices):
    chosen = defaultdict(list)
    for what, way, is_chosen, *_ in choices.alternatives():
        chosen[what] += [way] * is_chosen
    assert set(map(len, chosen.values())) == {1}
    assert chosen["top-k 50"] == ["lax.top_k"]


def test_the_cuts_keep_the_same_tokens(choices):
    found = defaultdict(dict)
    for what, way, _, call, arguments in choices.sampler():
        if what.startswith("top-k"):
            found[what][way] = jax.jit(call)(*arguments)
    for ways in found.values():
        values, ids = ways["lax.top_k"]
        in_place = np.zeros(ways["bisection"].shape, np.float32)
        np.put_along_axis(in_place, np.asarray(ids), np.asarray(values), axis=1)
        np.testing.assert_array_equal(ways["bisection"], in_place)
        if "two levels" in ways:
            np.testing.assert_array_equal(ways["two levels"][0], values)
            np.testing.assert_array_equal(ways["two levels"][1], ids)


@pytest.mark.slow
def test_the_gradients_agree(choices):
    found = defaultdict(dict)
    for what, way, _, call, arguments in [*choices.products(), *choices.layers()]:
        found[what][way] = jax.jit(call)(*arguments)
    for what, ways in found.items():
        first, second = ways.values()
        if "layers" in what:
            first = jax.tree.map(lambda *leaves: jnp.stack(leaves), *first)
        close = {"rtol": 0.1, "atol": 1.0} if "bfloat16" in what else {"rtol": 1e-3, "atol": 1e-3}
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **close), first, second)  # noqa: B023
