"""What is put in order for cuDNN's kernel equals the dense attention; XLA computes it here."""

import functools

import attrs
import pytest
from tests.model.attention.cases import CASES

from dovetail_model.attention.cudnn import cudnn

PORTABLE = functools.partial(cudnn, library="xla")


@pytest.mark.parametrize("name", [name for name in CASES if name not in ("soft-capped", "packed", "all")])
def test_equals_the_dense_one(name):
    CASES[name].check(PORTABLE)


def test_all_but_a_soft_cap():
    attrs.evolve(CASES["all"], cap=None).check(PORTABLE)
