"""Agent loop `tool_agent`: after each turn, tool calls are run or the environment responds."""

from __future__ import annotations

import functools
import json
import warnings
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import attrs
import numpy as np
from annotated_types import Ge, Gt

from dovetail import Chooses
from dovetail.errors import ConfigError, RunError
from dovetail.protocols import (
    ASSISTANT,
    Call,
    Episodes,
    Example,
    Interaction,
    Message,
    Parsed,
    Tokenizer,
    Tool,
    ToolFormat,
    Turn,
)
from dovetail.ranges import in_range
from dovetail.registry import declares
from dovetail_agent.agent_loop._toolbox import INTERACTION, Toolbox, opened
from dovetail_agent.record import FILE, Record
from dovetail_agent.runner import Ran
from dovetail_agent.signature import schema

ANSWERED: Final = "answered"
DONE: Final = "done"
MAX_TURNS: Final = "max_turns"
MAX_TOKENS: Final = "max_tokens"
TURN_CUT: Final = "turn_cut"
INVALID: Final = "invalid"
FAILED: Final = "failed"
"""Why an episode ended: the policy called no tool and there is no environment; the environment ended it; it reached a
limit on turns, tokens, tokens of a turn, or invalid calls; or it failed through no fault of the policy."""


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
        processes: number of processes in which tools run, so that the turns of a round run concurrently. 0: in this
            process, one after another; a call that hangs cannot be ended then.
        time_limit: seconds for a call, if `processes` is not 0. A call that takes longer is ended together with all
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
    processes: Annotated[int, Ge(0)] = attrs.field(default=0, validator=in_range)
    time_limit: Annotated[float, Gt(0)] = attrs.field(default=10.0, validator=in_range)
    pool: Annotated[Any, Chooses("pool")] = None
    record: bool = True

    def __attrs_post_init__(self) -> None:
        """Refuse two places to run tools in."""
        if self.processes and self.pool is not None:
            raise ConfigError(
                "tools run in `processes` or in a `pool`: set processes to 0, and the workers of the pool"
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
            return self.tokenizer.render(said + prompt + "".join(str(message["content"]) for message in more))
        if said and prompt:
            prompt = [{**prompt[0], "content": f"{said}{prompt[0]['content']}"}, *prompt[1:]]
        return self.tokenizer.render([*prompt, *more], tools=self.in_template)

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
            self.interaction.reset(example, generator(prompt=index)) if self.interaction else (None, ())
            for index, example in enumerate(examples)
        ]
        return Played(
            loop=self,
            prompts=tuple(self.rendered(e["prompt"], said) for e, (_, said) in zip(examples, opened, strict=True)),
            episodes=tuple(Episode(state=state) for state, _ in opened for _ in range(samples)),
            generator=generator,
        )


@attrs.define(kw_only=True)
class Episode:
    """One episode so far."""

    state: Any
    messages: list[Message] = attrs.field(factory=list)
    rewards: list[float] = attrs.field(factory=list)
    anchors: list[Hashable] = attrs.field(factory=list)
    void: list[bool] = attrs.field(factory=list)
    calls: int = 0
    errors: int = 0
    invalid: int = 0
    end: str = ""
    metrics: dict[str, float] = attrs.field(factory=dict)
    kept: dict[str, Any] = attrs.field(factory=dict)
    """The states of the tools, by name."""


@attrs.frozen(kw_only=True)
class Read:
    """The outcome of parsing a turn."""

    turn: Turn
    error: str | None
    calls: tuple[Call, ...]


@attrs.frozen(kw_only=True)
class Played:
    """Episodes in progress; see `dovetail.protocols.Running`."""

    loop: OpenToolAgent
    prompts: tuple[str, ...]
    episodes: tuple[Episode, ...]
    generator: Callable[..., np.random.Generator]

    def then(
        self, rows: Sequence[int], turns: Sequence[Sequence[int]], finish: Sequence[str]
    ) -> list[list[int] | None]:
        """Return what follows each turn."""
        parsed = [self._read(row, ids, why) for row, ids, why in zip(rows, turns, finish, strict=True)]
        most = self.loop.settings.max_calls
        called = [row for row, turn in zip(rows, parsed, strict=True) if turn.calls]
        asked = [turn.calls[:most] for turn in parsed if turn.calls]
        ran = dict(zip(called, self._run(called, asked), strict=True))
        return [
            self._written(row, ids, self._called(row, turn, ran[row]) if turn.calls else self._answer(row, turn))
            for row, ids, turn in zip(rows, turns, parsed, strict=True)
        ]

    def _run(self, rows: Sequence[int], calls: Sequence[Sequence[Call]]) -> list[list[Ran]]:
        """Run the calls of turns; those of the interaction's tools change its state."""
        episodes = [self.episodes[row] for row in rows]
        for episode in episodes:
            episode.kept[INTERACTION] = episode.state
        ran = self.loop.toolbox.run(
            calls, [episode.kept for episode in episodes], [self._identity(row) for row in rows]
        )
        for episode in episodes:
            episode.state = episode.kept[INTERACTION]
        return ran

    def _identity(self, row: int) -> str:
        """Return the identity of an episode's last turn in a run: its generator always draws the same bytes."""
        return self.generator(row=row, turn=len(self.episodes[row].rewards) - 1).bytes(16).hex()

    def _written(self, row: int, ids: Sequence[int], messages: Sequence[Message] | None) -> list[int] | None:
        """Return the ids of the messages after a turn; None if there are none."""
        if messages is None:
            return None
        self.episodes[row].messages += messages
        return self.loop.after(ids, messages)

    def _read(self, row: int, ids: Sequence[int], finish: str) -> Read:
        """Record a turn and parse it; the calls in the result are those to run."""
        episode, loop = self.episodes[row], self.loop
        text = loop.tokenizer.decode(list(ids))
        anchor = getattr(loop.interaction, "anchor", None)
        episode.anchors.append(anchor(episode.state) if anchor else None)
        episode.messages.append({"role": ASSISTANT, "content": text})
        episode.rewards.append(0.0)
        parsed = loop.tool_format.parse(text) if loop.schemas and finish != "length" else Parsed()
        episode.void.append(parsed.error is not None or finish == "length" or not text.strip())
        episode.errors += parsed.error is not None
        episode.invalid += parsed.error is not None
        asks = parsed.error is not None or bool(parsed.calls)
        if finish == "length":
            episode.end = TURN_CUT
        elif episode.invalid > loop.settings.max_invalid:
            episode.end = INVALID
        elif asks and len(episode.rewards) >= loop.max_turns:
            episode.end = MAX_TURNS
        turn = Turn(text=text, finish=finish, number=len(episode.rewards) - 1)
        return Read(turn=turn, error=parsed.error, calls=() if episode.end else parsed.calls)

    def _called(self, row: int, read: Read, ran: Sequence[Ran]) -> list[Message] | None:
        """Return the results of a turn's calls, or None if one failed through no fault of the policy."""
        episode = self.episodes[row]
        if lost := next((each.lost for each in ran if each.lost), ""):
            return self._failed(episode, lost)
        episode.calls += len(ran)
        episode.errors += sum(each.at_fault for each in ran)
        episode.rewards[-1] += sum(each.reward for each in ran)
        results = [self._result(call.name, each.text) for call, each in zip(read.calls, ran, strict=False)]
        if len(read.calls) > len(ran):
            said = f"error: only the first {len(ran)} of {len(read.calls)} calls were run"
            results.append(self._result("", said))
        return results

    def _answer(self, row: int, read: Read) -> list[Message] | None:
        """Return the response to a turn without calls, or None if the episode is over."""
        episode = self.episodes[row]
        if episode.end:
            return None
        if read.error is not None:
            return [self._result("", f"error: {read.error}")]
        if self.loop.interaction is None:
            episode.end = ANSWERED
            return None
        return self._stepped(row, self.loop.interaction, read.turn)

    def _failed(self, episode: Episode, why: str) -> None:
        episode.end = FAILED
        warnings.warn(f"an episode failed and is left out: {why}", RuntimeWarning, stacklevel=2)

    def _result(self, name: str, text: str) -> Message:
        return {
            "role": self.loop.settings.result_role,
            "name": name,
            "content": self.loop.settings.result.format(name=name, result=text),
        }

    def _stepped(self, row: int, interaction: Interaction, turn: Turn) -> list[Message] | None:
        """Let the interaction respond."""
        episode, last = self.episodes[row], turn.number + 1 >= self.loop.max_turns
        try:
            step = interaction.step(episode.state, turn, self.generator(row=row, turn=turn.number))
        except Exception as error:
            return self._failed(episode, f"the interaction raised {type(error).__name__}: {error}")
        episode.state, episode.rewards[-1] = step.state, float(step.reward)
        episode.metrics |= step.metrics
        if step.done or last or not step.messages:
            episode.end = MAX_TURNS if last and not step.done else DONE
            return None
        return list(step.messages)

    def result(self, full: Sequence[bool]) -> Episodes:
        """Return the records of the episodes."""
        for episode, is_full in zip(self.episodes, full, strict=True):
            episode.end = MAX_TOKENS if is_full else episode.end or FAILED
        failed = np.array([episode.end == FAILED for episode in self.episodes])
        if failed.all():
            raise RunError("every episode failed; the warnings above say why")
        numbers: dict[Hashable, int] = {}
        shape = (len(self.episodes), self.loop.max_turns)
        rewards, mask, anchors, void = np.zeros(shape), np.zeros(shape, bool), np.full(shape, -1), np.zeros(shape, bool)
        for row, episode in enumerate(self.episodes):
            count = len(episode.rewards)
            rewards[row, :count], mask[row, :count], void[row, :count] = episode.rewards, True, episode.void
            for turn, anchor in enumerate(episode.anchors):
                anchors[row, turn] = -1 if anchor is None else numbers.setdefault(anchor, len(numbers))
        names = sorted({name for episode in self.episodes for name in episode.metrics})
        return Episodes(
            turn_rewards=rewards,
            turn_mask=mask,
            anchor_ids=anchors,
            void_turns=void,
            tool_calls=np.array([episode.calls for episode in self.episodes]),
            tool_errors=np.array([episode.errors for episode in self.episodes]),
            ends=np.array([episode.end for episode in self.episodes]),
            failed=failed,
            conversations=tuple(tuple(episode.messages) for episode in self.episodes),
            states=tuple(episode.state for episode in self.episodes),
            metrics={n: np.array([e.metrics.get(n, np.nan) for e in self.episodes], float) for n in names},
        )
