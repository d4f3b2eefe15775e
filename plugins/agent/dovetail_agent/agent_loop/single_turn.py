"""Agent loop `single_turn`: an episode is a single completion."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from dovetail.errors import ConfigError
from dovetail.protocols import Interaction, Tokenizer, Tool, ToolFormat


@attrs.frozen(kw_only=True)
class SingleTurn:
    """The policy writes a single turn, and there is no response.

    Raises:
        ConfigError: if tools or an interaction are chosen, which it would never call.
    """

    def open(
        self, tokenizer: Tokenizer, interaction: Interaction | None, tools: Sequence[Tool], tool_format: ToolFormat
    ) -> None:
        """Return None: nothing follows a completion."""
        for setting, chosen in (("train.interaction", interaction), ("train.tools", tools)):
            if chosen:
                raise ConfigError(
                    f"{setting} is set, and train.agent_loop = 'single_turn' never calls it; set train.agent_loop to"
                    " 'tool_agent'"
                )
