"""A docstring without an example that shows a number is told apart from one with it; an example that is wrong fails."""

from __future__ import annotations

import jax  # noqa: F401 - a name of an example
import jax.numpy as jnp
import numpy as np  # noqa: F401 - a name of an example
import pytest

from dovetail.registry import Component, Origin
from dovetail_kit.conformance.check import UNWORKED, Inapplicable
from dovetail_kit.conformance.subject import Subject
from dovetail_kit.conformance.suites.worked import examples_of_its_docstring

pytest_plugins = ["pytester"]


def doubled(advantages, mask):
    """2·A.

    >>> doubled(jnp.array([[1.5]]), jnp.array([[True]])).tolist()
    [[3.0]]
    """
    return 2 * jnp.where(mask, advantages, 0.0)


def shown_by_its_shape(advantages, mask):
    """2·A.

    >>> shown_by_its_shape(jnp.array([[1.5]]), jnp.array([[True]])).shape
    (1, 1)
    """
    return 2 * jnp.where(mask, advantages, 0.0)


def shown_by_its_gradient(advantages, mask):
    """2·A.

    >>> jax.grad(lambda x: shown_by_its_gradient(x, jnp.array([[True]])).sum())(jnp.array([[1.5]])).tolist()
    [[2.0]]
    """
    return 2 * jnp.where(mask, advantages, 0.0)


def without(advantages, mask):
    """2·A."""
    return 2 * jnp.where(mask, advantages, 0.0)


def kept(advantages, mask):
    """Whether |A| is at least 1.

    >>> kept(np.array([[-1.5, 0.5]]), np.array([[True, True]])).tolist()
    [[True, False]]
    """
    return mask & (abs(advantages) >= 1)


def subject_of(function, kind="policy_loss"):
    return Subject(Component(kind=kind, name=function.__name__, target=function, origin=Origin("t", "0", __name__)))


def test_an_example_with_a_number_will_do():
    for function, kind in ((doubled, "policy_loss"), (shown_by_its_gradient, "policy_loss"), (kept, "loss_mask")):
        examples_of_its_docstring(subject_of(function, kind))


@pytest.mark.parametrize(
    ("function", "said"), [(without, "there are none"), (shown_by_its_shape, "they look at no number")]
)
def test_what_shows_no_number_is_skipped_with_a_reason(function, said):
    with pytest.raises(Inapplicable, match=said) as caught:
        examples_of_its_docstring(subject_of(function))
    assert UNWORKED in str(caught.value)


def test_the_report_names_who_has_none(pytester):
    pytester.makepyfile(
        mine='''
        import dovetail
        import jax.numpy as jnp
        from dovetail.arrays import masked


        @dovetail.hookimpl
        def dovetail_components(register):
            register("policy_loss", "mine", "mine:mine")


        def mine(logps, advantages, mask):
            """-A·log π, with advantages, logps and mask."""
            return -masked(advantages, mask) * masked(logps, mask)
        '''
    )
    found = pytester.runpytest_subprocess("--dovetail-dist=mine.py", "-k", "examples_of_its_docstring")
    found.stdout.fnmatch_lines(
        ["without a worked example, so that nothing says what it should compute: policy_loss/mine"]
    )
