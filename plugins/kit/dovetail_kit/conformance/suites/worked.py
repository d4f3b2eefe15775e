"""The claim about the examples of docstrings: they are right, and they pin down what a component computes."""

from __future__ import annotations

import doctest
import functools
import inspect
import io
import itertools
import re
import sys
from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from dovetail_kit.conformance.check import UNWORKED, Failed, Inapplicable, check
from dovetail_kit.conformance.outputs import only_written_otherwise
from dovetail_kit.conformance.subject import Subject
from dovetail_kit.conformance.suites.numbers import CONTROLLERS, SCHEDULES
from dovetail_kit.conformance.suites.values import ARRAYS

WORKED: Final = (*ARRAYS, *CONTROLLERS, *SCHEDULES, "answer", "process_reward", "reward", "reward_manager")
"""Kinds whose components compute something that can be worked out by hand."""
ESCAPED: Final = 'A "\\n" in a docstring is the end of a line: begin the docstring with r""", or write "\\\\n"'
OF_JAX: Final = ("For simplicity, JAX has removed", "----------")
"""What JAX says of its frames behind an error."""
RAISED: Final = "Exception raised:"
LONGEST: Final = 300
"""Characters of what is said of an example; of a longer result the first difference is shown."""
PART: Final = 90
FLAGS: Final = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@check(fix="Correct the example, or the component.")
def examples_of_its_docstring(subject: Subject) -> None:
    """The examples in its docstring, lines that begin with >>>, give what stands below them; one of them shows a number
    that it computes.

    They are the first thing that a user tries, and all that some read. The other checks know what every component of
    its kind must do, and nothing of the formula that this one is to compute.
    """
    target = inspect.unwrap(subject.component.load())
    computes = subject.component.kind in WORKED
    if ">>>" not in (inspect.getdoc(target) or "") or target.__module__ not in sys.modules:
        raise Inapplicable(f"there are none, {UNWORKED}" if computes else "there are none")
    failed, said = run_examples(target)
    if failed:
        agrees = only_written_otherwise(said)
        raise Failed(f"{agrees}{'. ' * bool(agrees)}{first_failure(said)}")
    if computes and inspect.isfunction(target) and not run_examples(target, {target.__name__: _altered(target)})[0]:
        raise Inapplicable(f"they look at no number that it computes, {UNWORKED}")


def first_failure(report: str) -> str:
    """Return the first example that fails, from a report of doctest, with what it gives or raises, in one line.

    >>> raised = "Exception raised:\\n    Traceback (most recent call last):\\n    ZeroDivisionError: no"
    >>> first_failure(f"****\\nFile 'f.py', line 2\\nFailed example:\\n    f(0)\\n{raised}\\n****\\nFile 'f.py'")
    'Failed example: f(0) Exception raised: ZeroDivisionError: no'
    """
    first = re.split(r"^\*{4,}\n", report, flags=re.MULTILINE)[1]
    lines = [line.strip() for line in first.splitlines()]
    _, *told = [line for line in lines if line and not line.startswith(OF_JAX)]
    if RAISED in told:
        told = [*told[: told.index(RAISED) + 1], told[-1]]
    whole = " ".join(told)
    return whole if len(whole) <= LONGEST else _first_difference(told) or whole[:LONGEST]


def _first_difference(told: list[str]) -> str:
    """Return the first line of a long result that is another one, with what it should be; empty if there is none.

    >>> _first_difference(["Failed example:", "f()", "Expected:", "a", "b", "Got:", "a", "c"])
    "Failed example: f() Expected in line 2: 'b' Got: 'c'"
    """
    if not {"Expected:", "Got:"} <= {*told}:
        return ""
    expected, got = told.index("Expected:"), told.index("Got:")
    pairs = itertools.zip_longest(told[expected + 1 : got], told[got + 1 :], fillvalue="")
    for number, (wanted, found) in enumerate(pairs, 1):
        if wanted not in (found, "..."):
            shorter = min(len(wanted), len(found))
            same = next((at for at in range(shorter) if wanted[at] != found[at]), shorter)
            shown = [_around(text, same) for text in (wanted, found)]
            return f"{' '.join(told[:expected])[:PART]} Expected in line {number}: {shown[0]} Got: {shown[1]}"
    return ""


def _around(text: str, place: int) -> str:
    """Return the part of a text around a place, as a message quotes it."""
    begin = max(place - PART // 3, 0) if len(text) > PART else 0
    part = repr(text[begin : begin + PART])
    return f"{'...' * (begin > 0)}{part}{'...' * (begin + PART < len(text))}"


def run_examples(target: Any, names: dict[str, Any] | None = None) -> tuple[int, str]:
    """Run the examples of a docstring, some names of the module replaced; return how many failed, and the report."""
    space = {"jax": jax, "jnp": jnp, "np": np} | vars(sys.modules[target.__module__]) | (names or {})
    try:
        test = doctest.DocTestParser().get_doctest(inspect.getdoc(target) or "", space, target.__name__, None, None)
    except ValueError as error:
        return 1, f"{'*' * 70}\n{target.__name__}\nthey cannot be read: {error}. {ESCAPED}"
    said = io.StringIO()
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        failed = doctest.DocTestRunner(verbose=False, optionflags=FLAGS).run(test, out=said.write).failed
    return failed, said.getvalue()


def _altered(target: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with other results, of the same shapes and types."""

    @functools.wraps(target)
    def altered(*args: Any, **kwargs: Any) -> Any:
        return jax.tree.map(_other, target(*args, **kwargs))

    return altered


def _other(value: Any) -> Any:
    if isinstance(value, bool | str):
        return not value if isinstance(value, bool) else f"{value}~"
    if isinstance(value, jax.Array | np.ndarray):
        if jnp.issubdtype(value.dtype, jnp.bool_):
            return ~value
        if not jnp.issubdtype(value.dtype, jnp.number):
            return value
        factor = value.dtype.type(3)  # of what is differentiated, or a difference, no constant would show
        return factor * value + value.dtype.type(7)
    return 3 * value + 7 if isinstance(value, int | float) else value
