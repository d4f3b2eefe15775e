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
    """As `tool_agent`, with what tools and the environment say written into the policy's own text.

    ```text
    Thought: ...          the policy
    Action: search        the policy
    Action Input: ...     the policy
    Observation: ...      a tool, or an error, in no loss
    Thought: ...          the policy
    ```

    No chat template stands between the turns, so it suits base models, and every template. A turn ends where the policy
    ends it; a model that would go on and make up observations is stopped by `sampling.stop = ['Observation:']`.
    Yao et al. 2023, *ReAct* (arXiv:2210.03629).

    Deltas against `tool_agent`:

    1. No end of turn is put behind a turn that has none, and the observation follows as plain text.
    2. Calls are those of the format `react`, one in a turn, and a turn that neither acts nor answers is told so.
    3. The prompt begins with an `instruction`.

    The other settings mean what they do in `tool_agent`: the limits `max_turns`, `max_turn_tokens`,
    `max_result_tokens`, `max_calls` and `max_invalid`; how a result is written, `result` and `result_role`; where tools
    run, `processes` and `time_limit`.

    Raises:
        ConfigError: when opened, if `train.tool_format` is another than `react`; and as `tool_agent`.
    """

    result: str = f"\n{OBSERVATION} {{result}}\n"
    instruction: str = INSTRUCTION

    @property
    def opened(self) -> type[OpenToolAgent]:
        """What it is when it is open."""
        return OpenReact

    def check(
        self, tokenizer: Tokenizer, interaction: Interaction | None, tools: Sequence[Tool], tool_format: ToolFormat
    ) -> None:
        """Refuse a format of which the policy is told nothing; chat templates are not asked."""
        if not isinstance(tool_format, react.React):
            raise ConfigError(
                "train.agent_loop = 'react' reads calls as lines of text; set train.tool_format to 'react'"
            )


class OpenReact(OpenToolAgent):
    """An open `React`."""

    @property
    def in_template(self) -> None:
        """Nothing: the instruction tells of the tools."""

    def after(self, ids: Sequence[int], messages: Sequence[Message]) -> list[int]:
        """Return the ids of an observation; what the policy has written of it is not repeated."""
        said = "".join(str(message["content"]) for message in messages)
        if self.tokenizer.decode(list(ids)).rstrip().endswith(OBSERVATION):
            said = said.partition(OBSERVATION)[2] or said
        return self.tokenizer.encode(said)
