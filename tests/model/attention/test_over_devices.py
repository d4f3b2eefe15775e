"""How the tokens of a row are cut over devices, and what these gather; test_transformer.py has the results."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh
from tests.model.attention.cases import Case

from dovetail.devices.mesh import AXES, KINDS
from dovetail_model.attention.blockwise import blockwise
from dovetail_model.attention.over_devices import collected, dealt, over_devices

PARTS = 4
CASE = Case(tokens=40, prefix=24)


def attend(queries, segments, *, scale, cap):
    mix = functools.partial(blockwise, key_block=8, scale=scale, cap=cap)
    return over_devices(mix, queries, segments, PARTS)


def on_four(function, *arguments):
    with jax.sharding.use_abstract_mesh(AbstractMesh((1, PARTS, 1), AXES, KINDS)):
        return function(*arguments)


def test_keys_of_whole_rows_are_gathered_for_the_backward_pass_again():
    arrays = CASE.arrays()
    text = str(on_four(jax.make_jaxpr(jax.grad(lambda arrays: CASE.mixed(attend, arrays).sum())), arrays))
    assert text.count("all_gather[") == 2 * 4, "keys and values of both segments, in both passes"
    assert text.count("reduce_scatter[") == 4, "their gradients"
    _, back = on_four(jax.eval_shape, lambda arrays: jax.vjp(lambda x: CASE.mixed(attend, x), arrays), arrays)
    held = {tuple(x.shape) for x in arrays[1:]}
    kept = {leaf.shape for leaf in jax.tree.leaves(back)}
    for rows, keys, heads, units in held:
        assert (rows * heads, keys, units) in kept, "each device's own"
        assert (PARTS * rows * heads, keys, units) not in kept, "all of them on each device"


@pytest.mark.parametrize("parts", [2, 3, 4])
def test_all_devices_see_as_many_keys(parts):
    row = jnp.arange(12 * parts)[None]
    hands = np.asarray(dealt(row, parts)).reshape(parts, -1)
    assert len({int(hand.sum()) for hand in hands}) == 1
    np.testing.assert_array_equal(collected(dealt(row, parts), parts), row)
