"""The kinds of episodes: what a policy writes in several turns, with what tools and environments say in between."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

import attrs

from dovetail.kinds.kind import Kind

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Bool, Float, Int, Shaped

    from dovetail.kinds.data import Example, Message, Tokenizer

__all__ = [
    "AgentLoop",
    "Call",
    "Episodes",
    "Interaction",
    "OpenLoop",
    "Parsed",
    "Result",
    "Running",
    "Step",
    "Tool",
    "ToolFormat",
    "Turn",
]

AGENT_LOOP: Final = Kind(
    name="agent_loop",
    summary="what follows a turn of the policy: the results of tools, an environment's answer, or the end",
    stage="drawn",
    setting="train.agent_loop",
    default="single_turn",
    protocol="dovetail.kinds.episodes:AgentLoop",
    scaffold="class",
)

INTERACTION: Final = Kind(
    name="interaction",
    summary="an environment: a game, a world, a simulated user",
    stage="drawn",
    setting="train.interaction",
    protocol="dovetail.kinds.episodes:Interaction",
    scaffold="class",
)

TOOL: Final = Kind(
    name="tool",
    summary="a typed function that the policy may call; its positional parameters are what the model writes",
    stage="drawn",
    setting="train.tools",
    many=True,
    default=(),
)

TOOL_FORMAT: Final = Kind(
    name="tool_format",
    summary="a turn's text -> the calls of tools in it",
    stage="drawn",
    setting="train.tool_format",
    default="hermes",
    protocol="dovetail.kinds.episodes:ToolFormat",
    scaffold="class",
)

KINDS: Final = (AGENT_LOOP, INTERACTION, TOOL, TOOL_FORMAT)


@attrs.frozen
class Call:
    """One call of a tool, as the policy wrote it.

    Attributes:
        name: which tool.
        arguments: by name; that of a tool's only parameter may stand under an empty name.
        texts: the arguments are texts, as the format has no other values; they become what the parameters are.
    """

    name: str
    arguments: Mapping[str, Any]
    texts: bool = False


@attrs.frozen
class Parsed:
    """The calls in a turn, in the order written; or what is wrong with them, in words that the model gets to read."""

    calls: tuple[Call, ...] = ()
    error: str | None = None


@attrs.frozen
class Result:
    """What a tool returns where a text alone does not say it.

    Attributes:
        text: what the model reads.
        state: what the tool is called with the next time in this episode, if it has a parameter `state`; a value, so
            that an episode can be branched and played again. The first time it is None.
        failed: whether the call failed by the model's own fault.
    """

    text: str
    state: Any = None
    failed: bool = False


@attrs.frozen(kw_only=True)
class Tool:
    """A tool with its hyperparameters set.

    It returns a text, a number, a list or a dict, or a `Result`. What it raises the model reads; an error of Dovetail's
    own (`dovetail.errors`) is not the model's to mend, and ends the run; a `ConnectionError` is nobody's fault, and the
    episode is left out. The model does not see a parameter `state`. A class may have `tools()`, which returns several.

    Attributes:
        function: takes what the model writes.
        target: the function as its author wrote it, or the class: the annotations of its positional parameters and its
            docstring say what the model may write.
        schema: `description` and `parameters` (JSON schema) where a server gives them; arguments are passed by name.
    """

    name: str
    function: Callable[..., Any]
    target: Callable[..., Any]
    schema: Mapping[str, Any] | None = None


class ToolFormat(Protocol):
    """Kind `tool_format`."""

    def parse(self, text: str) -> Parsed:
        """Find the calls in a turn's text; never raises."""
        ...

    def write(self, call: Call) -> str:
        """Return a call as `parse` reads it, for demonstrations."""
        ...


@attrs.frozen(kw_only=True)
class Turn:
    """What the policy wrote in one turn.

    Attributes:
        text: the turn as text, without special tokens.
        calls: the calls of tools in it, which have been run.
        finish: why the turn ended, a `Finish`.
        number: 0 for the first turn of an episode.
    """

    text: str
    calls: tuple[Call, ...] = ()
    finish: str = "eos"
    number: int = 0


@attrs.frozen(kw_only=True)
class Step:
    """What an interaction answers to a turn.

    Attributes:
        state: the state after the turn, a value: the old one stays as it was.
        messages: what the policy reads next; none where the episode is done.
        reward: of this turn.
        done: whether the episode is over.
        metrics: numbers for the log, by name; of an episode, the last one of each name counts.
    """

    state: Any
    messages: Sequence[Message] = ()
    reward: float = 0.0
    done: bool = False
    metrics: Mapping[str, float] = attrs.field(factory=dict)


class Interaction(Protocol):
    """Kind `interaction`: an environment as a pure function of explicit state.

    Nothing is kept between calls, so episodes can be resumed, branched and played again. It may also have
    `anchor(state)`, something hashable that is equal where two episodes stand at the same place (GiGPO groups by it).
    """

    @property
    def columns(self) -> tuple[str, ...]:
        """The task's columns that `reset` reads."""
        ...

    def reset(self, example: Example, rng: np.random.Generator) -> tuple[Any, Sequence[Message]]:
        """Return the first state and what stands behind the prompt's own messages.

        Called once for a group: all of its episodes start alike.
        """
        ...

    def step(self, state: Any, turn: Turn, rng: np.random.Generator) -> Step:
        """Answer a turn. The same state, turn and generator give the same answer."""
        ...


@attrs.frozen(kw_only=True)
class Episodes:
    """What an agent loop knows of episodes beside their tokens, a row for each.

    Attributes:
        turn_rewards: what the interaction gave to each turn; zero outside `turn_mask`.
        turn_mask: which turns there were.
        anchor_ids: a number for the state before each turn, equal where two episodes of a call stand at the same
            place; -1 where there is no turn or no anchor.
        void_turns: which turns were cut, without text, or asked for a call that cannot be read.
        tool_calls: how many calls were run.
        tool_errors: how many turns and calls failed by the policy's own fault.
        ends: why each episode ended.
        failed: which episodes failed by nobody's fault but ours, and are left out.
        conversations: the messages of each episode, the policy's turns among them.
        states: the last state of the interaction; None without one.
        metrics: numbers for the log; NaN on episodes without.
    """

    turn_rewards: Float[np.ndarray, "seq turn"]
    turn_mask: Bool[np.ndarray, "seq turn"]
    anchor_ids: Int[np.ndarray, "seq turn"]
    void_turns: Bool[np.ndarray, "seq turn"]
    tool_calls: Int[np.ndarray, "seq"]
    tool_errors: Int[np.ndarray, "seq"]
    ends: Shaped[np.ndarray, "seq"]
    failed: Bool[np.ndarray, "seq"]
    conversations: tuple[tuple[Message, ...], ...]
    states: tuple[Any, ...]
    metrics: Mapping[str, Float[np.ndarray, "seq"]] = attrs.field(factory=dict)


class Running(Protocol):
    """Episodes that are going on."""

    @property
    def prompts(self) -> Sequence[str]:
        """The text of each prompt, with what `Interaction.reset` added."""
        ...

    def then(
        self, rows: Sequence[int], turns: Sequence[Sequence[int]], finish: Sequence[str]
    ) -> list[list[int] | None]:
        """Return what follows the turns that have just ended.

        Args:
            rows: of which episodes; row `p * n + i` is sample `i` of prompt `p`.
            turns: the ids of each turn, as sampled, its end included.
            finish: why each turn ended, a `Finish`; 'length' where it was cut.

        Returns:
            For each, the ids to append before its next turn, or None where the episode is over.
        """
        ...

    def result(self, full: Sequence[bool]) -> Episodes:
        """Return what is known of the episodes when all are over; `full` is true where one had to end because nothing
        more fitted into it."""
        ...


class OpenLoop(Protocol):
    """An agent loop with its tokenizer, tools and environment.

    What an episode is does not depend on the others: random numbers come from the episode's own generators.
    """

    @property
    def max_turns(self) -> int:
        """How many turns an episode has at most."""
        ...

    @property
    def max_turn_tokens(self) -> int | None:
        """How many tokens a turn has at most; None: as many as the episode."""
        ...

    def prompt(self, example: Example) -> str:
        """Return a prompt as the model gets it, as far as it does not depend on chance; its length is measured."""
        ...

    def begin(
        self, examples: Sequence[Example], samples: int, generator: Callable[..., np.random.Generator]
    ) -> Running:
        """Begin `samples` episodes of each example.

        Args:
            examples: the task's, their prompts as the task gives them.
            samples: episodes of each.
            generator: `generator(prompt=p)` for resets, `generator(row=r, turn=k)` for what follows a turn; the same
                for the same keys.
        """
        ...


class AgentLoop(Protocol):
    """Kind `agent_loop`. One that goes on after a turn declares `turns=True`."""

    def open(
        self,
        tokenizer: Tokenizer,
        interaction: Interaction | None,
        tools: Sequence[Tool],
        tool_format: ToolFormat,
    ) -> OpenLoop | None:
        """Return the loop, or None where a completion is all there is.

        Raises:
            ConfigError: if what is chosen does not go together, or the tokenizer's chat template cannot be continued.
        """
        ...
