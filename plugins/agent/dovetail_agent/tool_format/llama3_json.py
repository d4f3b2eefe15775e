"""Tool format `llama3_json`: a turn that consists only of JSON, as Llama 3.1 to 3.3 write calls."""

from __future__ import annotations

import json
import re
from typing import Final

import attrs

from dovetail.protocols import Call, Parsed
from dovetail_agent.tool_format._json import call_of

BEGIN: Final = "<|python_tag|>"
_MEANT: Final = re.compile(r'\{\s*"name"\s*:')


@attrs.frozen(kw_only=True)
class Llama3Json:
    r"""Calls as `{"name": "search", "parameters": {"query": "..."}}`; several are separated by `;`.

    The models write a call as the whole turn. A turn that begins with other text, or with JSON that has no `name`,
    contains no call. `<|python_tag|>` may precede the call, and `arguments` may replace `parameters`.

    >>> Llama3Json().parse('{"name": "add", "parameters": {"a": 1}}').calls
    (Call(name='add', arguments={'a': 1}, texts=False),)
    >>> Llama3Json().parse('{"name": "add", "param').error
    'the call is not valid JSON: Unterminated string starting at: line 1 column 17 (char 16)'
    >>> Llama3Json().parse('{"answer": 3}')
    Parsed(calls=(), error=None)
    """

    def parse(self, text: str) -> Parsed:
        """Find the calls in a turn's text."""
        text = text.strip().removeprefix(BEGIN).strip()
        if not _MEANT.match(text):
            return Parsed()
        calls = []
        while text:
            try:
                found, end = json.JSONDecoder().raw_decode(text)
                written = "arguments" if isinstance(found, dict) and "arguments" in found else "parameters"
                calls.append(call_of(found, written))
            except (json.JSONDecodeError, RecursionError) as error:
                return Parsed(error=f"the call is not valid JSON: {error}")
            except ValueError as error:
                return Parsed(error=str(error))
            text = text[end:].strip().removeprefix(";").strip()
        return Parsed(calls=tuple(calls))

    def write(self, call: Call) -> str:
        """Return the text of a call, in the form that `parse` reads."""
        return json.dumps({"name": call.name, "parameters": dict(call.arguments)}, ensure_ascii=False)
