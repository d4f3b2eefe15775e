"""What the engine expects of stateful components. Every one is a frozen, keyword-only attrs class in its plugin.

Arrays are described with the field names of `docs/glossary.md`: `seq` is one completion, `prompt` one prompt, `token`
a position.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import attrs
import jax
import numpy as np
from flax import nnx
from jaxtyping import Array, Bool, Float, Int, Key

from dovetail.config.settings import Sampling

Example = Mapping[str, Any]
"""One record of a task: `prompt` (str), the columns that rewards read, and `completion` (str) where it demonstrates."""

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


class LanguageModel(Protocol):
    """A decoder: an `nnx.Module` without state of its own."""

    width: int
    vocab_size: int

    def __call__(
        self,
        tokens: Int[Array, "seq token"],
        mask: Bool[Array, "seq token"],
        cache: Any = None,
    ) -> tuple[Float[Array, "seq token width"], Any]:
        """Return the hidden states (after the last norm) of `tokens`, and the cache with their keys and values
        appended.

        `mask` is false on tokens that nobody may attend to (left padding). Positions count the true tokens of a row,
        the cached ones included.
        """
        ...

    def logits(self, hidden: Float[Array, "*batch width"]) -> Float[Array, "*batch vocab"]:
        """Project hidden states to float32 logits."""
        ...

    def init_cache(self, batch: int, length: int) -> Any:
        """Return an empty cache for `batch` rows of at most `length` tokens.

        A pytree: every array has the rows on its first axis, and scalars are common to all rows.
        """
        ...


class ModelMaker(Protocol):
    """Kind `model`: an architecture."""

    def make(self, vocab_size: int, *, rngs: nnx.Rngs) -> nnx.Module:
        """Return a randomly initialised or loaded `LanguageModel`."""
        ...


@attrs.frozen(kw_only=True)
class Completions:
    """What an engine returns, one row per completion, prompt-major: row `p * n + i` is sample `i` of prompt `p`.

    `mask` is true from the first token to the EOS (included) or the length limit. `logps` are log-probabilities at the
    sampling temperature over the whole vocabulary, and at temperature 1 for greedy sampling; zero outside the mask.
    `truncated` marks rows that hit the limit without an EOS. `versions` is the weights version each row was drawn with.
    """

    tokens: Int[np.ndarray, "seq token"]
    mask: Bool[np.ndarray, "seq token"]
    logps: Float[np.ndarray, "seq token"]
    truncated: Bool[np.ndarray, "seq"]
    versions: Int[np.ndarray, "seq"]


class RolloutEngine(Protocol):
    """An open engine."""

    def generate(
        self,
        prompt_tokens: Int[np.ndarray, "prompt position"],
        prompt_mask: Bool[np.ndarray, "prompt position"],
        keys: Key[Array, "prompt sample"],
        sampling: Sampling,
    ) -> Completions:
        """Sample one completion for each key; it depends on its prompt and its key alone, not on the batch."""
        ...

    def sync(self, params: Any, version: int) -> None:
        """Use these weights from now on."""
        ...

    def close(self) -> None:
        """Free what the engine holds; a second call does nothing."""
        ...


class Rollout(Protocol):
    """Kind `rollout`: opens an engine."""

    def open(self, graphdef: Any, params: Any, tokenizer: Tokenizer) -> RolloutEngine:
        """Return an engine that samples from `nnx.merge(graphdef, params)`."""
        ...


class RewardManager(Protocol):
    """Kind `reward_manager`: turns the table of rewards into one score per completion."""

    def __call__(
        self, score_table: Float[np.ndarray, "seq reward"], reward_names: tuple[str, ...]
    ) -> Float[np.ndarray, "seq"]:
        """Combine; NaN in the table means that the reward abstained."""
        ...


class KLController(Protocol):
    """Kind `kl_controller`: a coefficient with state, saved in checkpoints. Pure, so that it can be traced."""

    def init(self, coef: float) -> dict[str, jax.Array]:
        """Return the first state."""
        ...

    def coef(self, state: dict[str, jax.Array]) -> jax.Array:
        """Return the coefficient to use now."""
        ...

    def update(self, state: dict[str, jax.Array], kl: jax.Array, samples: jax.Array) -> dict[str, jax.Array]:
        """Return the next state, given the mean KL per token observed over `samples` completions."""
        ...


class Sink(Protocol):
    """An open metrics sink."""

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Take one step's metrics."""
        ...

    def close(self) -> None:
        """Flush."""
        ...


class SinkMaker(Protocol):
    """Kind `sink`."""

    def open(self, folder: Path, total_steps: int, start_step: int) -> Sink:
        """Return a sink for a run folder; `start_step` RL steps are done already, which is 0
        but for a resumed run."""
        ...
