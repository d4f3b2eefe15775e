"""The kinds around prompts, completions and their scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from dovetail.kinds.kind import Kind

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from jaxtyping import Float, Int

__all__ = [
    "ASSISTANT",
    "Curriculum",
    "Example",
    "Message",
    "Replay",
    "RewardManager",
    "Split",
    "Task",
    "Tokenizer",
    "TokenizerMaker",
]

TASK: Final = Kind(
    name="task",
    summary="prompts, dataset columns and demonstrations",
    stage="drawn",
    setting="train.task",
    default="arithmetic",
    protocol="dovetail.kinds.data:Task",
    scaffold="class",
)

TOKENIZER: Final = Kind(
    name="tokenizer",
    summary="text <-> ids",
    setting="train.tokenizer",
    default="sentencepiece",
    protocol="dovetail.kinds.data:TokenizerMaker",
    scaffold="class",
)

CURRICULUM: Final = Kind(
    name="curriculum",
    summary="scores so far -> which prompts come next",
    stage="drawn",
    setting="train.curriculum",
    protocol="dovetail.kinds.data:Curriculum",
    scaffold="class",
)

REPLAY: Final = Kind(
    name="replay",
    summary="earlier completions -> those that a step learns from again",
    stage="filtered",
    setting="train.replay",
    protocol="dovetail.kinds.data:Replay",
    scaffold="class",
)

REWARD: Final = Kind(
    name="reward",
    summary="completions and dataset columns by name -> one float (or None) per completion",
    stage="scored",
    setting="train.rewards",
    many=True,
    default=("check_answer",),
    reads="columns",
    placed=True,
)

PROCESS_REWARD: Final = Kind(
    name="process_reward",
    summary="completions and dataset columns by name -> one number per token of each completion",
    stage="scored",
    setting="train.process_rewards",
    many=True,
    default=(),
    reads="columns",
    parameters={"coef": 1.0},
)

REWARD_MANAGER: Final = Kind(
    name="reward_manager",
    summary="score_table -> scores",
    stage="scored",
    setting="train.reward_manager",
    default="weighted_sum",
    protocol="dovetail.kinds.data:RewardManager",
    scaffold="class",
)

ANSWER: Final = Kind(name="answer", summary="completions -> the answers that a majority vote counts")

KINDS: Final = (TASK, TOKENIZER, CURRICULUM, REPLAY, REWARD, PROCESS_REWARD, REWARD_MANAGER, ANSWER)


Example = Mapping[str, Any]
"""One record of a task: `prompt` (text, or a conversation as a list of messages), the columns that rewards read, and
`completion` (text) where it demonstrates. What is called a prompt beyond the task is the text that
`Tokenizer.render` makes of it."""


Message = Mapping[str, Any]
"""One turn of a conversation: `role` (`system`, `user`, `assistant`) and `content`; templates may read more keys."""


ASSISTANT: Final = "assistant"
"""The role of what the policy writes."""


Split = Literal["train", "eval", "sft"]


class Task(Protocol):
    """Kind `task`: where prompts, columns and demonstrations come from."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of `train` and `eval` examples that a reward may read; cheap to ask."""
        ...

    def examples(self, split: Split) -> Sequence[Example]:
        """Return a random-access sequence of examples; the same one at every call.

        Raises:
            DataError: with file and line, before anything is half-read.
        """
        ...

    def corpus(self) -> Sequence[str]:
        """Return texts on which a tokenizer may be trained."""
        ...


class Tokenizer(Protocol):
    """Text <-> ids. `pad_id` fills arrays and never means anything: masks do."""

    @property
    def vocab_size(self) -> int:
        """Number of ids."""
        ...

    @property
    def pad_id(self) -> int:
        """The id that fills arrays."""
        ...

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """The ids that end a completion."""
        ...

    def encode(self, text: str) -> list[int]:
        """Return ids, without adding any special token."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Return text, leaving out special tokens such as the end of the sequence."""
        ...

    def render(self, prompt: str | Sequence[Message], tools: Sequence[Mapping[str, Any]] | None = None) -> str:
        """Return a prompt as `encode` should get it: plain text with what must stand in front of it, or a conversation
        in the chat template, up to where the assistant's next turn begins.

        Args:
            prompt: a text, or messages.
            tools: JSON schemas of functions that the model may call, for the chat template.

        Raises:
            DataError: for messages, if there is no chat template, or it refuses them.
        """
        ...

    def bridge(self, messages: Sequence[Message]) -> list[int]:
        """Return the ids between the end of an assistant's turn, which the policy has written, and its next turn.

        Without a chat template they are those of the messages' texts, one after another.

        Raises:
            ConfigError: if the chat template does not end the assistant's turns with an EOS, or rewrites what was said
                before, so that a conversation cannot go on where it stopped.
            DataError: if it refuses the messages.
        """
        ...

    def save(self, folder: Path) -> None:
        """Write what `TokenizerMaker.load` needs."""
        ...


class TokenizerMaker(Protocol):
    """Kind `tokenizer`."""

    def make(self, corpus: Sequence[str]) -> Tokenizer:
        """Load the tokenizer, or train it on `corpus`; the same corpus gives the same tokenizer."""
        ...

    def load(self, folder: Path) -> Tokenizer:
        """Read back what `Tokenizer.save` wrote."""
        ...


class Curriculum(Protocol):
    """Kind `curriculum`: which prompts come next, from the scores so far. Runs on the host; its state is saved in
    checkpoints."""

    def init(self, examples: int) -> dict[str, np.ndarray]:
        """Return the first state for a task of so many examples."""
        ...

    def choose(
        self, state: Mapping[str, np.ndarray], count: int, rng: np.random.Generator
    ) -> Int[np.ndarray, "prompt"]:
        """Return the indices of the next `count` examples; the same state and generator give the same ones."""
        ...

    def update(
        self, state: Mapping[str, np.ndarray], chosen: Int[np.ndarray, "prompt"], scores: Float[np.ndarray, "prompt n"]
    ) -> dict[str, np.ndarray] | tuple[dict[str, np.ndarray], dict[str, float]]:
        """Return the next state, given the scores of the completions of each chosen prompt; NaN stands for no score.

        Numbers by name beside it, `(state, metrics)`, are logged as `curriculum/NAME`.
        """
        ...


class Replay(Protocol):
    """Kind `replay`: which earlier completions a step learns from again. Runs on the host; its state is saved in
    checkpoints, so all of its arrays keep their shapes and types.

    Groups travel as the fields of a batch: [group, row, ...] arrays by name, `mask`, `scores` and `rollout_logps` among
    them. Fields that models compute (`old_logps`, advantages) are computed anew when a group comes again.
    """

    @property
    def groups(self) -> int:
        """How many earlier groups join each step; fewer join as ones with empty masks."""
        ...

    def init(self, empty: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the first state; `empty` is one group, [row, ...], without any token."""
        ...

    def step(
        self, state: Mapping[str, np.ndarray], fresh: Mapping[str, np.ndarray], rng: np.random.Generator
    ) -> (
        tuple[dict[str, np.ndarray], dict[str, np.ndarray]]
        | tuple[dict[str, np.ndarray], dict[str, np.ndarray], dict[str, float]]
    ):
        """Return the `groups` earlier groups to learn from beside the fresh ones, and the next state.

        The same state, groups and generator give the same result. Numbers by name as a third are logged as
        `replay/NAME`.
        """
        ...


class RewardManager(Protocol):
    """Kind `reward_manager`: turns the table of rewards into one score per completion."""

    def __call__(
        self, score_table: Float[np.ndarray, "seq reward"], reward_names: tuple[str, ...]
    ) -> Float[np.ndarray, "seq"]:
        """Combine; NaN in the table means that the reward abstained."""
        ...
