"""Tool format `pythonic`: a list of calls as Python writes them, as Gemma 3 and Llama 4 are prompted to."""

from __future__ import annotations

import ast
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
            return Parsed(calls=tuple(_call(node) for node in body.elts)) if isinstance(body, ast.List) else Parsed()
        except ValueError as error:
            return Parsed(error=str(error))

    def write(self, call: Call) -> str:
        """Return the text of a call, in the form that `parse` reads."""
        return f"[{call.name}({', '.join(f'{name}={value!r}' for name, value in call.arguments.items())})]"


def _call(node: ast.expr) -> Call:
    if not isinstance(node, ast.Call):
        raise ValueError(f"not a call: {ast.unparse(node)[:80]}; calls are [name(argument=value), ...]")
    if node.args or any(keyword.arg is None for keyword in node.keywords):
        raise ValueError(f"arguments are written by name: {ast.unparse(node.func)}(argument=value)")
    return Call(ast.unparse(node.func), {str(keyword.arg): _literal(keyword) for keyword in node.keywords})


def _literal(keyword: ast.keyword) -> Any:
    try:
        return ast.literal_eval(keyword.value)
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"the argument '{keyword.arg}' is not a literal: {ast.unparse(keyword.value)[:80]}") from error
