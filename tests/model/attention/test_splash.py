"""What is put in order for the splash kernel equals the dense attention; the kernel is interpreted here."""

import functools

import pytest
from tests.model.attention.cases import CASES

from dovetail_model.attention.splash import splash

PORTABLE = functools.partial(splash, interpret=True)


@pytest.mark.parametrize("name", [name for name in CASES if name not in ("packed",)])
def test_equals_the_dense_one(name):
    CASES[name].check(PORTABLE)
