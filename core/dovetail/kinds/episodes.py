"""The kinds for episodes: the policy writes in several turns, with the output of tools and environments in between."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

import attrs

from dovetail.kinds.kind import Kind

if TYPE_CHECKING:
    from pathlib import Path

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
    "Recordable",
    "Result",
    "Running",
    "Step",
    "Tool",
    "ToolFormat",
    "ToolFunction",
    "Turn",
]

AGENT_LOOP: Final = Kind(
    name="agent_loop",
    summary="a turn of the policy -> what follows it: the results of tools, an environment's reply, or the end",
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
    optional=("anchor", "tools"),
    scaffold="class",
)

TOOL: Final = Kind(
    name="tool",
    summary="a typed function that the policy may call; the model supplies its positional parameters",
    stage="drawn",
    setting="train.tools",
    many=True,
    default=(),
    protocol="dovetail.kinds.episodes:ToolFunction",
    optional=("tools",),
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
        name: the name of the tool.
        arguments: by parameter name; for a tool with a single parameter, the name may be empty.
        texts: whether all arguments are text because the format has no other types; they are then converted to the
            types of the parameters.
    """

    name: str
    arguments: Mapping[str, Any]
    texts: bool = False


@attrs.frozen
class Parsed:
    """The calls in a turn, in the order written, or an error message for the model to read."""

    calls: tuple[Call, ...] = ()
    error: str | None = None


@attrs.frozen
class Result:
    """The result of a tool that returns more than a text.

    Attributes:
        text: the text that the model reads.
        state: passed to the tool's parameter `state`, if it has one, at its next call in this episode; None at the
            first call. An immutable value, so that an episode can be branched and replayed. What is not a `Result`, or
            raises, leaves the state as it was; a `Result` without one sets it to None.
        failed: whether the call failed through the model's own fault. It is counted in `tool_errors`, and changes
            nothing else: such a result may have a state and a reward too.
        reward: added to the reward of the turn with the call; it may be negative.
    """

    text: str
    state: Any = None
    failed: bool = False
    reward: float = 0.0


@attrs.frozen(kw_only=True)
class Tool:
    """A tool with its hyperparameters set.

    It returns a text, a number, a list, a dict or a `Result`. The model reads the message of an exception that the tool
    raises, with two exceptions: a `dovetail.errors` error, which the model cannot fix, ends the run, and a
    `ConnectionError`, which is not the policy's fault, excludes the episode. A parameter `state` is hidden from the
    model. A class may define `tools()`, which returns several tools.

    Attributes:
        name: the name that the model calls it by.
        function: the callable that takes the model's arguments.
        target: the function as its author wrote it, or the class: the annotations of its positional parameters and its
            docstring tell the model how to call it.
        schema: `description` and `parameters` (JSON schema), where a server provides them; arguments are then passed
            by name.
    """

    name: str
    function: Callable[..., Any]
    target: Callable[..., Any]
    schema: Mapping[str, Any] | None = None


class ToolFunction(Protocol):
    """Kind `tool`: a function whose positional parameters the model supplies, by name or in order.

    The model reads the first line of its docstring, and the annotations of these parameters with what the section
    `Args` says of them; nothing else. A parameter `state` is hidden from the model; it is written without a default,
    `state: int | None`. A class may have a property `remark`, a sentence after that first line that depends on its
    hyperparameters.
    """

    def __call__(self, *arguments: Any, state: Any = None) -> str | float | list[Any] | Mapping[str, Any] | Result:
        """Return a text, what is written as text, or a `Result`.

        The model reads the message of an exception, with two exceptions: a `dovetail.errors` error ends the run, and a
        `ConnectionError` excludes the episode.

        Args:
            arguments: what the model wrote, as the annotations ask for.
            state: that of the `Result` of its last call in this episode; None at the first.
        """
        ...


class ToolFormat(Protocol):
    """Kind `tool_format`: how the policy writes tool calls in its text."""

    def parse(self, text: str) -> Parsed:
        """Find the calls in a turn's text; never raises."""
        ...

    def write(self, call: Call) -> str:
        """Return the text of a call, in the form that `parse` reads; used for demonstrations.

        Where `parse` gives all arguments as texts (`Call.texts`), a value that is not a text is written as JSON:
        `true`, `null`, `[1, 2]`.
        """
        ...


@attrs.frozen(kw_only=True)
class Turn:
    """One turn of the policy.

    Attributes:
        text: the turn as text, without special tokens.
        calls: the tool calls in it, which have been run.
        finish: why the turn ended, a `Finish`.
        number: 0 for the first turn of an episode.
    """

    text: str
    calls: tuple[Call, ...] = ()
    finish: str = "eos"
    number: int = 0


@attrs.frozen(kw_only=True)
class Step:
    """An interaction's response to a turn.

    Attributes:
        state: the state after the turn, a new value: the previous state is not modified.
        messages: the messages that the policy reads next; empty if the episode is done. An episode to which nothing
            more is said ends, whatever `done` says.
        reward: the reward for this turn.
        done: whether the episode is over.
        metrics: numbers to log as `episode/NAME`, the mean over the episodes that have it; within an episode, the last
            value of each name is used. A name that the engine has there, such as `turns_mean`, stays the engine's.
    """

    state: Any
    messages: Sequence[Message] = ()
    reward: float = 0.0
    done: bool = False
    metrics: Mapping[str, float] = attrs.field(factory=dict)


class Interaction(Protocol):
    """Kind `interaction`: an environment as a pure function of explicit state.

    It keeps nothing between calls, so that episodes can be resumed, branched and replayed. It may also define
    `anchor(state)`, which returns a hashable value that is equal for equal states of two episodes (GiGPO groups steps
    by it), and `tools()`, which returns tools that act on its state: their parameter `state` is the interaction's, and
    so is the state of their `Result`.
    """

    @property
    def columns(self) -> tuple[str, ...]:
        """The task's columns that `reset` reads; empty if it reads none, as where all is drawn from its generator."""
        ...

    def reset(self, example: Example, rng: np.random.Generator) -> tuple[Any, Sequence[Message]]:
        """Return the initial state, and messages to append to those of the prompt.

        Called once per group, so that all of its episodes start from the same state.
        """
        ...

    def step(self, state: Any, turn: Turn, rng: np.random.Generator) -> Step:
        """Respond to a turn, deterministically given the state, the turn and the generator."""
        ...


@attrs.frozen(kw_only=True)
class Episodes:
    """What an agent loop records about episodes in addition to their tokens, one row per episode.

    Attributes:
        turn_rewards: the interaction's reward for each turn; zero outside `turn_mask`.
        turn_mask: true on the turns that took place.
        anchor_ids: a number for the state before each turn, equal for equal states of the episodes generated together;
            -1 where there is no turn or no anchor.
        void_turns: turns that were cut off, had no text, or contained a call that cannot be parsed.
        tool_calls: how many calls were run.
        tool_errors: how many turns and calls failed through the policy's own fault.
        ends: why each episode ended.
        failed: episodes that failed through no fault of the policy; they are excluded.
        conversations: the messages of each episode, including the policy's turns.
        states: the final state of the interaction; None without an interaction.
        metrics: numbers to log, by name; NaN for an episode without that metric.
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
    """Episodes in progress.

    If they need not wait for one another, they also have a method

        alone(row, turn, finish) -> list[int] | None

    which returns what `then` would for this turn alone. An engine that can (`Turns.play`) then asks for an episode's
    next turn while others still write theirs. It is called from several threads, for different episodes; tokenizer,
    tools in this process and the interaction are not made for threads, so it lets one of them in at a time.
    """

    @property
    def prompts(self) -> Sequence[str]:
        """The text of each prompt, including the messages that `Interaction.reset` added."""
        ...

    def then(
        self, rows: Sequence[int], turns: Sequence[Sequence[int]], finish: Sequence[str]
    ) -> list[list[int] | None]:
        """Return the ids that follow the turns that have just ended.

        Args:
            rows: the episodes they belong to; row `p * n + i` is sample `i` of prompt `p`.
            turns: the ids of each turn, as sampled, including its end token.
            finish: why each turn ended, a `Finish`; 'length' if it was cut off.

        Returns:
            For each episode, the ids to append before its next turn, or None if the episode is over.
        """
        ...

    def result(self, full: Sequence[bool]) -> Episodes:
        """Return the records of all episodes, once every one is over.

        `full` is true for an episode that had to end because it had reached its length limit.
        """
        ...


class OpenLoop(Protocol):
    """An agent loop with its tokenizer, tools and environment.

    Episodes are independent of one another: each draws its random numbers from generators of its own. A loop may be
    `Recordable` too.
    """

    @property
    def max_turns(self) -> int:
        """The maximum number of turns in an episode."""
        ...

    @property
    def max_turn_tokens(self) -> int | None:
        """The maximum number of tokens in a turn; None if only the episode's limit applies."""
        ...

    def prompt(self, example: Example) -> str:
        """Return the part of the model's prompt that does not depend on random draws, so that it can be measured."""
        ...

    def begin(
        self, examples: Sequence[Example], samples: int, generator: Callable[..., np.random.Generator]
    ) -> Running:
        """Begin `samples` episodes of each example.

        Args:
            examples: examples of the task, with their prompts as the task provides them.
            samples: the number of episodes per example.
            generator: returns a random generator that is always the same for the same arguments:
                `generator(prompt=p)` for resets, `generator(row=r, turn=k)` for the response to a turn.
        """
        ...


@runtime_checkable
class Recordable(Protocol):
    """An `OpenLoop` whose tools may give other results the next time."""

    def recording(self, folder: Path, *, only: bool = False) -> OpenLoop:
        """Return the loop with a record of results in a run's folder.

        What is there is not asked for again, so a run that is killed and resumed repeats its episodes. With `only`,
        nothing is asked for at all.
        """
        ...


class AgentLoop(Protocol):
    """Kind `agent_loop`. A loop that can continue after the first turn declares `turns=True`."""

    def open(
        self,
        tokenizer: Tokenizer,
        interaction: Interaction | None,
        tools: Sequence[Tool],
        tool_format: ToolFormat,
    ) -> OpenLoop | None:
        """Return the loop, or None if an episode is a single completion.

        Raises:
            ConfigError: if the chosen components are incompatible, or a conversation in the tokenizer's chat template
                cannot be continued.
        """
        ...
