"""Tool format `react`: thought, action and action input as lines of text."""

from __future__ import annotations

import json
import re
from typing import Final

import attrs

from dovetail.protocols import Call, Parsed
from dovetail_agent.signature import ONLY
from dovetail_agent.tool_format._json import loaded

OBSERVATION: Final = "Observation:"

_ACTION: Final = re.compile(r"^[ \t]*Action:(.*)$", re.MULTILINE)
_INPUT: Final = re.compile(r"^[ \t]*Action Input:[ \t]*(.*)\Z", re.MULTILINE | re.DOTALL)
_ANSWER: Final = re.compile(r"^[ \t]*Final Answer:", re.MULTILINE)
_SAID: Final = re.compile(rf"^[ \t]*{OBSERVATION}(.*)\Z", re.MULTILINE | re.DOTALL)


@attrs.frozen(kw_only=True)
class React:
    r"""One call as `Action: search` and `Action Input: {"query": "..."}`, or an answer as `Final Answer: ...`.

    ```text
    Thought: I have to look for the town first.
    Action: search
    Action Input: towns by the sea
    ```

    The input is a JSON object with the arguments, or a text for a tool's only parameter. A turn with neither an action
    nor an answer, or with both, is an error, and so is an observation that the model has made up. Yao et al. 2023,
    *ReAct* (arXiv:2210.03629), in the form popularised by LangChain; the paper writes `Action: Search[...]`.

    >>> React().parse('Thought: Add.\nAction: add\nAction Input: {"a": 1}').calls
    (Call(name='add', arguments={'a': 1}, texts=False),)
    >>> React().parse("Thought: I know it.\nFinal Answer: 3")
    Parsed(calls=(), error=None)
    """

    def parse(self, text: str) -> Parsed:
        """Find the call in a turn's text."""
        said = _SAID.search(text)
        if said and said[1].strip():
            return Parsed(error="you have written an observation yourself; end your turn after 'Action Input: ...'")
        text = text[: said.start()] if said else text
        action, answer = _ACTION.search(text), _ANSWER.search(text)
        if (action is None) == (answer is None):
            have = "either 'Action: ...' with 'Action Input: ...', or 'Final Answer: ...'"
            return Parsed(error=f"write {have}" + (", and not both" if action else ""))
        if action is None:
            return Parsed()
        return self._called(action[1].strip(" \t"), _INPUT.search(text, action.end()))

    def _called(self, name: str, given: re.Match[str] | None) -> Parsed:
        if not name or given is None:
            return Parsed(error="an action is a line 'Action: NAME' and a line 'Action Input: ...'")
        text = given[1].strip()
        if not text.startswith("{"):
            return Parsed(calls=(Call(name, {ONLY: text} if text else {}, texts=True),))
        try:
            return Parsed(calls=(Call(name, loaded(text)),))
        except ValueError as error:
            return Parsed(error=str(error))

    def write(self, call: Call) -> str:
        """Return the text of a call, in the form that `parse` reads."""
        return f"Action: {call.name}\nAction Input: {json.dumps(dict(call.arguments), ensure_ascii=False)}"
