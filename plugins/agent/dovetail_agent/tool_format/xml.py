"""Tool format `xml`: a tag for the function and for each parameter, as Qwen3-Coder writes calls."""

from __future__ import annotations

import json
import re
from typing import Final

import attrs

from dovetail.protocols import Call, Parsed

BEGIN: Final = "<tool_call>"
END: Final = "</tool_call>"
_FUNCTION: Final = re.compile(r"<function=([^<>\n]*)>(.*?)(</function>|\Z)", re.DOTALL)
_PARAMETER: Final = re.compile(r"<parameter=([^<>\n]*)>\n?(.*?)\n?(</parameter>|(?=<parameter=)|\Z)", re.DOTALL)


@attrs.frozen(kw_only=True)
class Xml:
    r"""Calls as functions with their parameters in tags, any number of them.

    ```text
    <tool_call>
    <function=search>
    <parameter=query>
    towns by the sea
    </parameter>
    </function>
    </tool_call>
    ```

    Values are literal text, without the line breaks next to the tags, so that code needs no escapes. If a parameter is
    not a text, its value is parsed as JSON. Qwen3-Coder sometimes omits `<tool_call>`, which is accepted.

    >>> Xml().parse("<function=add>\n<parameter=a>\n1\n</parameter>\n</function>").calls
    (Call(name='add', arguments={'a': '1'}, texts=True),)
    >>> Xml().parse("<tool_call>\n<function=add>\n<parameter=a>\n1").error
    'the call does not end with </function>'
    """

    def parse(self, text: str) -> Parsed:
        """Find the calls in a turn's text."""
        calls = []
        for name, body, end in _FUNCTION.findall(text):
            if not end:
                return Parsed(error="the call does not end with </function>")
            given = {}
            for parameter, value, closed in _PARAMETER.findall(body):
                if not closed:
                    return Parsed(error=f"the parameter '{parameter.strip()}' does not end with </parameter>")
                given[parameter.strip()] = value
            calls.append(Call(name.strip(), given, texts=True))
        if not calls and BEGIN in text:
            return Parsed(error=f"a call is {BEGIN}<function=NAME><parameter=NAME>value</parameter></function>{END}")
        return Parsed(calls=tuple(calls))

    def write(self, call: Call) -> str:
        """Return the text of a call, in the form that `parse` reads."""
        lines = [BEGIN, f"<function={call.name}>"]
        for name, value in call.arguments.items():
            written = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            lines += [f"<parameter={name}>", written, "</parameter>"]
        return "\n".join([*lines, "</function>", END])
