"""Agent loop `react`: thoughts, actions and observations in one text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from dovetail.errors import ConfigError
from dovetail.protocols import Interaction, Message, Tokenizer, Tool, ToolFormat
from dovetail.registry import declares
from dovetail_agent.agent_loop.tool_agent import OpenToolAgent, ToolAgent
from dovetail_agent.tool_format import react
from dovetail_agent.tool_format.react import OBSERVATION

INSTRUCTION: Final = """\
You can use these tools:
{tools}

Write one thought and one action at a time, in this form:
Thought: what to do next
Action: one of {names}
Action Input: its arguments, as a JSON object
You then read the result as an observation. When you know the answer, write:
Thought: I know the answer
Final Answer: the answer

"""


@declares(turns=True)
@attrs.frozen(kw_only=True)
class React(ToolAgent):
    """Like `tool_agent`, but the output of tools and the environment continues the policy's text.

    ```text
    Thought: ...          the policy
    Action: search        the policy
    Action Input: ...     the policy
    Observation: ...      a tool, or an error, in no loss
    Thought: ...          the policy
    ```

    No chat template is applied between turns, so it works with base models and with any template. A turn ends where the
    policy ends it; set `sampling.stop = ['Observation:']` if the model would continue with invented observations.
    Yao et al. 2023, *ReAct* (arXiv:2210.03629).

    Deltas against `tool_agent`:

    1. An end of turn is not added to a turn without one, and the observation follows as plain text.
    2. Calls have the format `react`, one per turn; a turn with neither an action nor an answer gets an error message.
    3. The prompt begins with an `instruction`.

    The other settings are the same as in `tool_agent`: the limits `max_turns`, `max_turn_tokens`, `max_result_tokens`,
    `max_calls` and `max_invalid`; the format of results, `result` and `result_role`; where tools run, `processes` and
    `time_limit`.

    Raises:
        ConfigError: when opened, if `train.tool_format` is not `react`, or as for `tool_agent`.
    """

    result: str = f"\n{OBSERVATION} {{result}}\n"
    instruction: str = INSTRUCTION

    @property
    def opened(self) -> type[OpenToolAgent]:
        """The class of the open loop."""
        return OpenReact

    def check(
        self, tokenizer: Tokenizer, interaction: Interaction | None, tools: Sequence[Tool], tool_format: ToolFormat
    ) -> None:
        """Refuse formats that the instruction does not explain; the chat template does not matter."""
        if not isinstance(tool_format, react.React):
            raise ConfigError(
                "train.agent_loop = 'react' reads calls as lines of text; set train.tool_format to 'react'"
            )


class OpenReact(OpenToolAgent):
    """An open `React`."""

    @property
    def in_template(self) -> None:
        """Nothing: the instruction describes the tools."""

    def after(self, ids: Sequence[int], messages: Sequence[Message]) -> list[int]:
        """Return the ids of an observation, without the part that the policy has already written."""
        said = self.texts(messages)
        if self.tokenizer.decode(list(ids)).rstrip().endswith(OBSERVATION):
            said = said.partition(OBSERVATION)[2] or said
        return self.tokenizer.encode(said)
