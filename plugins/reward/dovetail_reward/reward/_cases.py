"""Tests for model-written code, in the formats of common data sets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import attrs


@attrs.frozen(kw_only=True)
class Case:
    """One test: the input and the expected output, as text or, if a function is called, as values."""

    stdin: str
    call: dict[str, Any] | None
    expected: Any

    @property
    def output_limit(self) -> int:
        """Return the size in bytes above which an output is wrong in any case."""
        spelled = self.expected if self.call is None else json.dumps(self.expected)
        return 65_536 + 4 * len(spelled)


def read_cases(cell: Mapping[str, Any] | str) -> list[Case]:
    r"""Return the tests in a cell of a data set: `inputs`, `outputs`, and `fn_name` if a function is to be called.

    Raises:
        ValueError: if the cell does not contain tests; the message shows it.

    >>> read_cases('{"inputs": ["1\\n"], "outputs": ["2\\n"]}')
    [Case(stdin='1\n', call=None, expected='2\n')]
    >>> read_cases({"fn_name": "add", "inputs": ["1\n2"], "outputs": ["3"]})
    [Case(stdin='', call={'function': 'add', 'arguments': [1, 2]}, expected=3)]
    """
    try:
        given = json.loads(cell) if isinstance(cell, str) else cell
        inputs, outputs, function = given["inputs"], given["outputs"], given.get("fn_name")
        pairs = list(zip(inputs, outputs, strict=True))
        if not pairs:
            raise ValueError("there are none")
        return [_program(*pair) if function is None else _function(function, *pair) for pair in pairs]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        shown = repr(cell)
        raise ValueError(
            f"no tests in {shown[:80]}{'...' * (len(shown) > 80)} ({type(error).__name__}: {error}); expected"
            ' {"inputs": [...], "outputs": [...]} of one length, and "fn_name" where a function is tested'
        ) from error


def _program(stdin: Any, expected: Any) -> Case:
    return Case(stdin=_text(stdin), call=None, expected=_text(expected))


def _text(given: Any) -> str:
    """Lines may come as a list."""
    if isinstance(given, list):
        return "\n".join(map(str, given))
    if not isinstance(given, str):
        raise TypeError(f"{given!r} is neither a text nor a list of lines")
    return given


def _function(name: Any, arguments: Any, expected: Any) -> Case:
    if not isinstance(name, str):
        raise TypeError(f"fn_name is {name!r}")
    if isinstance(arguments, str):
        arguments = [json.loads(line) for line in arguments.split("\n") if line.strip()]
    if not isinstance(arguments, list):
        raise TypeError(f"the input {arguments!r} is not a list of arguments")
    return Case(stdin="", call={"function": name, "arguments": arguments}, expected=_value(expected))


def _value(expected: Any) -> Any:
    if not isinstance(expected, str):
        return expected
    try:
        return json.loads(expected)
    except ValueError:
        return expected
