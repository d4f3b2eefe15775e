"""Agent loop `tool_agent`: after each turn, tool calls are run or the environment responds."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import attrs
import numpy as np
from annotated_types import Ge, Gt

from dovetail import Chooses
from dovetail.errors import ConfigError
from dovetail.protocols import Example, Interaction, Message, Tokenizer, Tool, ToolFormat
from dovetail.ranges import in_range
from dovetail.registry import declares
from dovetail_agent.agent_loop._owner import begun
from dovetail_agent.agent_loop._played import Episode, Played
from dovetail_agent.agent_loop._toolbox import Toolbox, opened
from dovetail_agent.record import FILE, Record
from dovetail_agent.signature import schema


@declares(turns=True)
@attrs.frozen(kw_only=True)
class ToolAgent:
    """An episode of several turns, with the output of tools and an environment in between.

    After a turn, its calls are run in the order written and the policy reads the results. If the turn has no calls, the
    interaction responds; without an interaction the episode is over. An interaction may offer tools of its own, which
    act on its state.

    The policy reads a message about its own errors (invalid JSON, an unknown tool, arguments of the wrong type, an
    exception that the tool raises). An error that is not its fault (an exception of the interaction, a
    `ConnectionError` of a tool) ends the episode, which is then excluded everywhere, rather than given a reward of
    zero.

    Args:
        max_turns: maximum number of turns. The calls of the last turn are not run, since nothing would read the
            results.
        max_turn_tokens: maximum number of tokens in a turn; a turn that is cut off ends the episode. None: only the
            limit of the episode applies (`sampling.max_tokens`, which includes observations).
        max_result_tokens: maximum number of tokens of a tool's result; a longer one is cut off, with a note.
        max_calls: maximum number of calls in a turn; further ones are not run, and the policy reads a note.
        max_invalid: how many turns may have calls that cannot be parsed; one more ends the episode.
        result: the format of a result if the chat template has none; `{name}` and `{result}` are the tool's.
        result_role: the role of a result: `tool`, or `user` for chat templates without tools.
        instruction: text to put before the prompt (before its first message), for models whose chat template does not
            describe tools; `{tools}` stands for their JSON schemas, `{names}` for their names.
        processes: number of processes in which tools run, so that calls of several episodes run concurrently. None: as
            many calls as there are cores of a tool that has a process of its own for each (it declares `own_process`,
            as `python` does), and all others in this process, one after another; a call that hangs cannot be ended
            then. 0: all in this process, one after another.
        time_limit: seconds for a call, if there are `processes`. A call that takes longer is ended together with all
            processes that it has started, and the policy reads a message.
        pool: where tools run, in place of `processes` and `time_limit`: `processes` or `ray`, with that pool's number
            of workers and seconds for a call.
        record: whether a run writes the results of tools to `tools.jsonl` in its folder, so that it can be killed and
            resumed although they may differ the next time.

    Raises:
        ConfigError: on construction, if both `processes` and `pool` are set; when opened, if neither tools nor an
            interaction is chosen, or the chat template cannot continue after a turn.
    """

    max_turns: Annotated[int, Ge(1)] = attrs.field(default=8, validator=in_range)
    max_turn_tokens: Annotated[int, Ge(1)] | None = attrs.field(default=None, validator=in_range)
    max_result_tokens: Annotated[int, Ge(1)] = attrs.field(default=256, validator=in_range)
    max_calls: Annotated[int, Ge(1)] = attrs.field(default=4, validator=in_range)
    max_invalid: Annotated[int, Ge(0)] = attrs.field(default=2, validator=in_range)
    result: str = "{result}"
    result_role: Literal["tool", "user"] = "tool"
    instruction: str = ""
    processes: Annotated[int, Ge(0)] | None = attrs.field(default=None, validator=in_range)
    time_limit: Annotated[float, Gt(0)] = attrs.field(default=10.0, validator=in_range)
    pool: Annotated[Any, Chooses("pool")] = None
    record: bool = True

    def __attrs_post_init__(self) -> None:
        """Refuse two places to run tools in."""
        if self.processes and self.pool is not None:
            raise ConfigError(
                "tools run in `processes` or in a `pool`: leave processes out, and set the workers of the pool"
            )

    def open(
        self,
        tokenizer: Tokenizer,
        interaction: Interaction | None,
        tools: Sequence[Tool],
        tool_format: ToolFormat,
    ) -> OpenToolAgent:
        """Return the loop."""
        acting = list(offered()) if (offered := getattr(interaction, "tools", None)) else []
        tools = opened([*tools, *acting])
        if interaction is None and not tools:
            raise ConfigError(
                "train.agent_loop = 'tool_agent' has nothing that could follow a turn; set train.tools or"
                " train.interaction"
            )
        self.check(tokenizer, interaction, tools, tool_format)
        toolbox = Toolbox(
            tools=tuple(tools),
            tokenizer=tokenizer,
            max_tokens=self.max_result_tokens,
            processes=self.processes,
            time_limit=self.time_limit,
            acting=frozenset(tool.name for tool in acting),
            pool=self.pool,
        )
        if self.pool is not None:
            _ = toolbox.workers  # tools that cannot be sent there are refused now
        return self.opened(
            settings=self,
            tokenizer=tokenizer,
            interaction=interaction,
            toolbox=toolbox,
            tool_format=tool_format,
            schemas=[schema(tool) for tool in tools],
        )

    def check(
        self, tokenizer: Tokenizer, interaction: Interaction | None, tools: Sequence[Tool], tool_format: ToolFormat
    ) -> None:
        """Check now, not in the first episode, that the chat template can continue after a turn."""
        for role, there in ((self.result_role, tools), ("user", interaction)):
            if there:
                tokenizer.bridge([{"role": role, "name": "probe", "content": "probe"}])

    @property
    def opened(self) -> type[OpenToolAgent]:
        """The class of the open loop."""
        return OpenToolAgent


@attrs.frozen(kw_only=True, slots=False)
class OpenToolAgent:
    """An open `ToolAgent`; see `dovetail.protocols.OpenLoop`."""

    settings: ToolAgent
    tokenizer: Tokenizer
    interaction: Interaction | None
    toolbox: Toolbox
    tool_format: ToolFormat
    schemas: list[dict[str, Any]]

    @property
    def max_turns(self) -> int:
        """The maximum number of turns in an episode."""
        return self.settings.max_turns

    @property
    def max_turn_tokens(self) -> int | None:
        """The maximum number of tokens in a turn."""
        return self.settings.max_turn_tokens

    def recording(self, folder: Path, *, only: bool = False) -> OpenToolAgent:
        """Return the loop with a record of its tools' results in a folder; with `only` no tool is run."""
        if not self.settings.record:
            return self
        return attrs.evolve(self, toolbox=attrs.evolve(self.toolbox, record=Record(path=folder / FILE, only=only)))

    def prompt(self, example: Example) -> str:
        """Return the prompt without the messages that `reset` adds."""
        return self.rendered(example["prompt"], ())

    def rendered(self, prompt: str | Sequence[Message], more: Sequence[Message]) -> str:
        """Return the text of a prompt with further messages; a plain text is followed by the texts of the messages."""
        said = self.instruction
        if isinstance(prompt, str):
            return self.tokenizer.render(said + prompt + self.texts(more))
        if said and prompt:
            prompt = [{**prompt[0], "content": f"{said}{prompt[0]['content']}"}, *prompt[1:]]
        return self.tokenizer.render([*prompt, *more], tools=self.in_template)

    def texts(self, messages: Sequence[Message]) -> str:
        """Return the texts of messages, in which special tokens that are spelt out stay text if the tokenizer can."""
        text = "".join(str(message["content"]) for message in messages)
        as_text = getattr(self.tokenizer, "as_text", None)
        return as_text(text) if as_text else text

    @property
    def in_template(self) -> list[dict[str, Any]] | None:
        """The tools that the chat template describes."""
        return self.schemas or None

    @functools.cached_property
    def instruction(self) -> str:
        """The text that describes the tools to the policy."""
        functions = [each["function"] for each in self.schemas]
        names = ", ".join(function["name"] for function in functions)
        told = "\n".join(json.dumps(function, ensure_ascii=False) for function in functions)
        return self.settings.instruction.replace("{tools}", told).replace("{names}", names)

    def after(self, ids: Sequence[int], messages: Sequence[Message]) -> list[int]:
        """Return the ids of the messages after a turn, preceded by an end of turn if the turn has none."""
        ended = len(ids) > 0 and ids[-1] in self.tokenizer.eos_ids
        return ([] if ended else [self.tokenizer.eos_ids[0]]) + self.tokenizer.bridge(messages)

    def begin(self, examples: Sequence[Example], samples: int, generator: Callable[..., np.random.Generator]) -> Played:
        """Begin episodes."""
        opened = [
            begun(self.interaction, example, generator(prompt=index)) if self.interaction else (None, ())
            for index, example in enumerate(examples)
        ]
        return Played(
            loop=self,
            prompts=tuple(self.rendered(e["prompt"], said) for e, (_, said) in zip(examples, opened, strict=True)),
            episodes=tuple(Episode(state=state) for state, _ in opened for _ in range(samples)),
            generator=generator,
        )
