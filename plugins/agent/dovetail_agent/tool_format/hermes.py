"""Tool format `hermes`: JSON between `<tool_call>` tags, as Qwen 2.5 and 3 and the Hermes models write it."""

from __future__ import annotations

import json
import re
from typing import Final

import attrs

from dovetail.protocols import Call, Parsed
from dovetail_agent.tool_format._json import call_of, loaded

BEGIN: Final = "<tool_call>"
END: Final = "</tool_call>"
_CALL: Final = re.compile(re.escape(BEGIN) + r"(.*?)(" + re.escape(END) + r"|\Z)", re.DOTALL)


@attrs.frozen(kw_only=True)
class Hermes:
    r"""Calls as `<tool_call>{"name": "search", "arguments": {"query": "..."}}</tool_call>`, any number of them.

    `arguments` may also be a text that holds JSON, as some models write it.

    >>> Hermes().parse('I add.\n<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>').calls
    (Call(name='add', arguments={'a': 1}, texts=False),)
    >>> Hermes().parse('<tool_call>{"name": "add", "argu').error
    'the call does not end with </tool_call>'
    >>> Hermes().parse("Nothing to call.")
    Parsed(calls=(), error=None)
    """

    def parse(self, text: str) -> Parsed:
        """Find the calls in a turn's text."""
        calls = []
        for body, end in _CALL.findall(text):
            if not end:
                return Parsed(error=f"the call does not end with {END}")
            try:
                calls.append(call_of(loaded(body)))
            except ValueError as error:
                return Parsed(error=str(error))
        return Parsed(calls=tuple(calls))

    def write(self, call: Call) -> str:
        """Return the text of a call, in the form that `parse` reads."""
        body = json.dumps({"name": call.name, "arguments": dict(call.arguments)}, ensure_ascii=False)
        return f"{BEGIN}\n{body}\n{END}"
