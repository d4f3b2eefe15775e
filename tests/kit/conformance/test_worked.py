"""A docstring without an example that shows a number is told apart from one with it; an example that is wrong fails."""

from __future__ import annotations

import re

import jax  # noqa: F401 - a name of an example
import jax.numpy as jnp
import numpy as np  # noqa: F401 - a name of an example
import pytest

from dovetail.registry import Component, Origin
from dovetail_kit.conformance.check import UNWORKED, Failed, Inapplicable
from dovetail_kit.conformance.outputs import only_written_otherwise
from dovetail_kit.conformance.subject import Subject
from dovetail_kit.conformance.suites.worked import examples_of_its_docstring, first_failure

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


@pytest.mark.parametrize(
    ("wanted", "got", "said"),
    [
        (
            "Array([0.5, 1.], dtype=float32)",
            "Array([0.5, 1. ], dtype=float32, weak_type=True)",
            "an array shows its dty",
        ),
        ("[0.28125]", "[0.28124997]", "0.28124997 is 0.28125 but for rounding, so show np.asarray(x, f"),
        ("[[0.0, 1.5]]", "[[-0.0, 1.5]]", "-0.0 is 0.0 with another sign, so show x + 0.0"),
        ("1.5", "Array(1.5, dtype=float32)", "an array shows its dtype"),
        ("(0.5, nan)", "(np.float32(0.5), nan)", "an array shows its dtype"),
        ("[0.7726, 0.0]", "[0.7725999951, -0.0]", "so show np.asarray(x, float).round(4).tolist(); -0.0 is 0.0 with"),
        ("[0.28125]", "[0.2813]", ""),
        ("[[1.0], [2.0]]", "[[1.0, 2.0]]", ""),
        ("'a1'", "'b1'", ""),
        ("['0']", "['0.0']", ""),
        ("True", "False", ""),
    ],
)
def test_a_result_whose_numbers_agree_is_told_to_be_written_otherwise(wanted, got, said):
    report = f"Failed example:\n    f()\nExpected:\n    {wanted}\nGot:\n    {got}\n"
    found = only_written_otherwise(report)
    assert said in found
    assert found.startswith("the numbers agree: ") or (not said and not found)


def test_an_array_in_the_call_is_not_one_in_the_result():
    report = "Failed example:\n    f(np.array([0]))\nExpected:\n    ['0']\nGot:\n    ['0.0']\n"
    assert only_written_otherwise(report) == ""


def test_of_a_long_result_the_first_difference_is_told():
    lines = [f"{number} is {number}" for number in range(60)]
    other = [*lines[:40], "40 is 41", *lines[41:]]
    shown = ["\n".join(f"    {line}" for line in each) for each in (lines, other)]
    report = f"{'*' * 70}\nFile 'f.py', line 2\nFailed example:\n    f()\nExpected:\n{shown[0]}\nGot:\n{shown[1]}\n"
    assert first_failure(report) == "Failed example: f() Expected in line 41: '40 is 40' Got: '40 is 41'"
    wanted, got = (repr([0.5] * 90 + [last]) for last in (1.5, 2.5))
    report = f"{'*' * 70}\nFile 'f.py', line 2\nFailed example:\n    f()\nExpected:\n    {wanted}\nGot:\n    {got}\n"
    assert re.search(r"in line 1: \.\.\.'.*0\.5, 1\.5\]' Got: \.\.\.'.*0\.5, 2\.5\]'$", first_failure(report))


def test_the_failure_says_so_first(monkeypatch):
    monkeypatch.setattr(doubled, "__doc__", (doubled.__doc__ or "").replace(".tolist()", ""))
    with pytest.raises(
        Failed, match=r"^the numbers agree: an array shows .* show x\.tolist\(\)\. Failed example: doubled"
    ):
        examples_of_its_docstring(subject_of(doubled))


def test_an_end_of_line_within_an_example_is_explained(monkeypatch):
    monkeypatch.setattr(doubled, "__doc__", '2·A.\n\n    >>> doubled("a\n")\n    4\n    ')
    with pytest.raises(Failed, match=r'^they cannot be read: line .*: begin the docstring with r"""'):
        examples_of_its_docstring(subject_of(doubled))


def test_an_error_of_jax_is_told_and_not_what_is_said_of_its_frames(monkeypatch):
    monkeypatch.setattr(
        doubled, "__doc__", "2·A.\n\n    >>> doubled(jnp.zeros((2, 3)), jnp.zeros((4, 5), bool))\n    4\n    "
    )
    with pytest.raises(Failed, match=r"Exception raised: ValueError: Incompatible shapes"):
        examples_of_its_docstring(subject_of(doubled))


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
