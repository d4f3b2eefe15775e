"""The kinds that provide prompts and score completions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from dovetail.kinds.kind import Around, Kind

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
    summary="earlier completions -> those that a step trains on again",
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
    optional=("asks", "columns"),
    parameters={"pool": Around("pool")},
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
"""One record of a task: `prompt` (text, or a conversation as a list of messages), the columns that rewards read and,
for a demonstration, `completion` (text). Outside the task, "prompt" means the text that `Tokenizer.render` returns."""


Message = Mapping[str, Any]
"""One turn of a conversation: `role` (`system`, `user`, `assistant`) and `content`; templates may read more keys."""


ASSISTANT: Final = "assistant"
"""The role of the messages that the policy writes."""


Split = Literal["train", "eval", "sft"]
"""The splits of a task: prompts to train on, prompts to evaluate on, and demonstrations for the supervised phase."""


class Task(Protocol):
    """Kind `task`: where prompts, columns and demonstrations come from."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of `train` and `eval` examples that a reward may read; must be cheap to compute."""
        ...

    def examples(self, split: Split) -> Sequence[Example]:
        """Return a random-access sequence of examples; every call returns the same examples in the same order.

        An example is a dict of `prompt` (text, or messages with `role` and `content`) and the columns that rewards
        read; one with a demonstration, as those of the split `sft`, has `completion` (text) as well.

        Raises:
            DataError: if the data is malformed, with file and line, before any example is used.
        """
        ...

    def corpus(self) -> Sequence[str]:
        """Return texts that a tokenizer may be trained on."""
        ...


class Tokenizer(Protocol):
    """Text <-> ids. Masks, never `pad_id`, tell real tokens from padding.

    A method is optional: `as_text(text)` returns a text that `encode` reads without the special tokens that are spelt
    out in it. Agent loops ask it for results that follow a turn without a chat template.
    """

    @property
    def vocab_size(self) -> int:
        """The number of ids; they run from 0 to `vocab_size - 1`."""
        ...

    @property
    def pad_id(self) -> int:
        """The id used for padding."""
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
        """Return a prompt as text to `encode`.

        Plain text is returned with any prefix that the model expects; a conversation is rendered with the chat
        template, up to where the assistant's next turn begins.

        Args:
            prompt: a text, or messages.
            tools: JSON schemas of functions that the model may call, for the chat template.

        Raises:
            DataError: if `prompt` is a conversation and there is no chat template, or the template rejects it.
        """
        ...

    def bridge(self, messages: Sequence[Message]) -> list[int]:
        """Return the ids between the end of an assistant turn that the policy wrote and the start of its next turn.

        Without a chat template these are the ids of the messages' texts, concatenated.

        Raises:
            ConfigError: if the chat template does not end assistant turns with an EOS, or rewrites earlier messages,
                so that a conversation cannot be continued from the tokens that were sampled.
            DataError: if the template rejects the messages.
        """
        ...

    def save(self, folder: Path) -> None:
        """Write the files that `TokenizerMaker.load` reads."""
        ...


class TokenizerMaker(Protocol):
    """Kind `tokenizer`."""

    def make(self, corpus: Sequence[str]) -> Tokenizer:
        """Load the tokenizer, or train it on `corpus`; the same corpus gives the same tokenizer."""
        ...

    def load(self, folder: Path) -> Tokenizer:
        """Load the tokenizer that `Tokenizer.save` wrote."""
        ...


class Curriculum(Protocol):
    """Kind `curriculum`: chooses the next prompts from the scores so far.

    Runs on the host; checkpoints include its state, so all of its arrays must keep their shapes and dtypes.

    A step samples in rounds. Each calls `choose` and then `update` with the scores of what was chosen, before the next
    round chooses. There is one round in a step, or, with a group filter, as many as it takes, up to
    `train.refill_rounds` more; none where the groups that `train.oversample` has left over are enough. So what is to
    move by a fixed amount per step cannot be moved in `update` with such a filter: it moves once in a round.
    """

    def init(self, examples: int) -> dict[str, np.ndarray]:
        """Return the initial state, numpy arrays by names of its own, for a task with this number of examples."""
        ...

    def choose(
        self, state: Mapping[str, np.ndarray], count: int, rng: np.random.Generator
    ) -> Int[np.ndarray, "prompt"]:
        """Return the indices of the next `count` examples, deterministically given the state and the generator.

        An index may come more than once, as it must where there are fewer examples than `count`.
        """
        ...

    def update(
        self, state: Mapping[str, np.ndarray], chosen: Int[np.ndarray, "prompt"], scores: Float[np.ndarray, "prompt n"]
    ) -> dict[str, np.ndarray] | tuple[dict[str, np.ndarray], dict[str, float]]:
        """Return the next state, or `(state, metrics)`; the metrics are logged as `curriculum/NAME`.

        Metrics are finite numbers about a round, of which a step logs the last. One that has no value in a round, such
        as a mean over nothing, is left out of the dict.

        Args:
            state: the current one, which must not be changed in place.
            chosen: the indices that `choose` returned. One that it chose twice is here twice, each time with scores of
                its own: `np.add.at(count, chosen, 1)` counts both, `count[chosen] += 1` only one of them.
            scores: of the `n` completions of each chosen prompt; NaN where a completion has no score. n is
                `train.group_size`, which may be 1: then no two completions of a prompt can be compared.
        """
        ...


class Replay(Protocol):
    """Kind `replay`: chooses earlier completions for a step to train on again.

    Runs on the host; checkpoints include its state, so all of its arrays must keep their shapes and dtypes.

    Groups are passed as batch fields: [group, row, ...] arrays by name, including `mask`, `scores` and
    `rollout_logps`. Fields that models compute (`old_logps`, advantages) are recomputed when a group is replayed.
    Scores are finite: one that is missing is 0, and its completion has no policy token.
    """

    @property
    def groups(self) -> int:
        """How many earlier groups join each step; if there are fewer, empty groups make up the number.

        An empty group is best a copy of `empty`, which `init` gets. Not `mask` alone must be false in it, but every
        mask of its completions and demonstrations: a term of the loss may read `observed` or `demo_mask`.
        """
        ...

    def init(self, empty: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the initial state, arrays by names of its own; `empty` is one group, [row, ...], of false masks."""
        ...

    def step(
        self, state: Mapping[str, np.ndarray], fresh: Mapping[str, np.ndarray], rng: np.random.Generator
    ) -> (
        tuple[dict[str, np.ndarray], dict[str, np.ndarray]]
        | tuple[dict[str, np.ndarray], dict[str, np.ndarray], dict[str, float]]
    ):
        """Return the `groups` earlier groups to train on in addition to the fresh ones, and the next state.

        Fresh groups have the fields of `empty`, and so must the earlier ones.
        The result must be deterministic given the state, the fresh groups and the generator. An optional third result,
        metrics by name, is logged as `replay/NAME`.
        """
        ...


class RewardManager(Protocol):
    """Kind `reward_manager`: turns the table of rewards into one score per completion."""

    def __call__(
        self, score_table: Float[np.ndarray, "seq reward"], reward_names: tuple[str, ...]
    ) -> Float[np.ndarray, "seq"]:
        """Return the score of each completion; NaN in the table means that the reward abstained.

        Args:
            score_table: a column for each reward.
            reward_names: what stands in `train.rewards`, in its order, which is that of the columns: a manager finds a
                reward by its name here. The conformance checks call two of them `first` and `second`.
        """
        ...
