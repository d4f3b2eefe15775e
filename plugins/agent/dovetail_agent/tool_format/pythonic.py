"""Tool format `pythonic`: a list of calls as Python writes them, as Gemma 3 and Llama 4 are prompted to."""

from __future__ import annotations

import ast
import json
import re
from typing import Any, Final

import attrs

from dovetail.protocols import Call, Parsed

_MEANT: Final = re.compile(r"\[\s*[A-Za-z_][\w.]*\s*\(")
_FENCE: Final = re.compile(r"^```\w*\n(.*?)(?:\n?```)?$", re.DOTALL)


@attrs.frozen(kw_only=True)
class Pythonic:
    """Calls as `[search(query="...", limit=3), other()]`: the whole turn, optionally between code fences.

    Arguments are literals, passed by name. Any other turn contains no call. Gemma's chat template supports neither
    tools nor their results: use `agent_loop.tool_agent.instruction` to describe the tools, and `result_role = 'user'`
    for results. From Google's guide to function calling with Gemma.

    >>> Pythonic().parse("[add(a=1, b=-2)]").calls
    (Call(name='add', arguments={'a': 1, 'b': -2}, texts=False),)
    >>> Pythonic().parse("[add(a=1, b=").error
    'the calls are not valid Python: [add(a=1, b='
    >>> Pythonic().parse("The list [1, 2] calls nothing.")
    Parsed(calls=(), error=None)
    """

    def parse(self, text: str) -> Parsed:
        """Find the calls in a turn's text."""
        text = text.strip()
        if fenced := _FENCE.match(text):
            text = fenced[1].strip()
        if not _MEANT.match(text):
            return Parsed()
        try:
            body = ast.parse(text, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return Parsed(error=f"the calls are not valid Python: {text[:80]}")
        try:
            calls = [_call(node, text) for node in body.elts] if isinstance(body, ast.List) else []
            return Parsed(calls=tuple(calls))
        except ValueError as error:
            return Parsed(error=str(error))

    def write(self, call: Call) -> str:
        """Return the text of a call, in the form that `parse` reads."""
        return f"[{call.name}({', '.join(f'{name}={value!r}' for name, value in call.arguments.items())})]"


def _call(node: ast.expr, text: str) -> Call:
    if not isinstance(node, ast.Call):
        raise ValueError(f"not a call: {_written(node, text)[:80]}; calls are [name(argument=value), ...]")
    name = _written(node.func, text)
    if node.args or any(keyword.arg is None for keyword in node.keywords):
        raise ValueError(f"arguments are written by name: {name[:80]}(argument=value)")
    return Call(name, {str(keyword.arg): _literal(keyword, text) for keyword in node.keywords})


def _literal(keyword: ast.keyword, text: str) -> Any:
    """Return a literal as the JSON value that the other formats would have: lists for tuples, texts for keys."""
    try:
        return json.loads(json.dumps(ast.literal_eval(keyword.value)))
    except (ValueError, TypeError, RecursionError, MemoryError) as error:
        said = _written(keyword.value, text)[:80]
        raise ValueError(f"the argument '{keyword.arg}' is not a literal that JSON has: {said}") from error


def _written(node: ast.expr, text: str) -> str:
    # `ast.unparse` would recurse: a policy that repeats itself writes sums of a thousand terms
    return ast.get_source_segment(text, node) or ""
