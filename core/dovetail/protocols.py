"""What the engine expects of stateful components. Every one is a frozen, keyword-only attrs class in its plugin.

Arrays are described with the field names of `docs/glossary.md`: `seq` is one completion, `prompt` one prompt, `token`
a position.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import attrs
import jax
import numpy as np
from flax import nnx
from jaxtyping import Array, Bool, Float, Int, Key, Shaped

from dovetail.config.settings import Sampling

Example = Mapping[str, Any]
"""One record of a task: `prompt` (text, or a conversation as a list of messages), the columns that rewards read, and
`completion` (text) where it demonstrates. What is called a prompt beyond the task is the text that
`Tokenizer.render` makes of it."""

Message = Mapping[str, Any]
"""One turn of a conversation: `role` (`system`, `user`, `assistant`) and `content`; templates may read more keys."""

Axes = tuple[str | None, ...]
"""The logical axis of each dimension of a parameter: `vocab`, `width`, `ffn`, `heads`, `kv_heads`; None is not cut."""

Split = Literal["train", "eval", "sft"]

Finish = Literal["eos", "stop", "length", "error"]
"""Why a completion ended: with an EOS, with a stop string in its text, at `max_tokens`, or because it failed."""


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

    def render(self, prompt: str | Sequence[Message]) -> str:
        """Return a prompt as `encode` should get it: plain text with what must stand in front of it, or a conversation
        in the chat template, up to where the assistant's next turn begins.

        Raises:
            DataError: for messages, if there is no chat template, or it refuses them.
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


class Weights(NamedTuple):
    """A model's parameters, `nnx.merge(graphdef, *weights)`: those being trained, and those that never change.

    `frozen` is empty where everything is trained; with an adapter it holds the base, of which there is one copy
    whatever the number of policies: the reference is the first `trained` over the same `frozen`.
    """

    trained: Any
    frozen: Any


class LanguageModel(Protocol):
    """A decoder: an `nnx.Module` without state of its own.

    A parameter may name its logical axes, `nnx.Param(kernel, axes=("width", "ffn"))`, one name or None for each
    dimension; a mesh shards by these names.

    One that is trained with dropout has a true attribute `has_dropout`; its `__call__` then also takes `keys`, one
    random key for each row of `tokens`. They are given in the forward passes of training and in no other.
    """

    width: int
    vocab_size: int

    def __call__(
        self,
        tokens: Int[Array, "seq token"],
        mask: Bool[Array, "seq token"],
        cache: Any = None,
        *,
        prefix: Any = None,
    ) -> tuple[Float[Array, "seq token width"], Any]:
        """Return the hidden states (after the last norm) of `tokens`, and the cache with their keys and values
        appended.

        `mask` is false on tokens that nobody may attend to (left padding). Positions count the true tokens of a row,
        the prefix's and the cached ones included.

        `prefix` is the cache that another call returned for fewer rows, each of which the same number of consecutive
        rows continue: row `i` of `tokens` follows row `i // (seq // prompt)` of the prefix. Its keys and values are
        used where they are, never repeated, and gradients flow through them.
        """
        ...

    def logits(self, hidden: Float[Array, "*batch width"]) -> Float[Array, "*batch vocab"]:
        """Project hidden states to float32 logits."""
        ...

    def init_cache(self, batch: int, length: int) -> Any:
        """Return an empty cache for `batch` rows of at most `length` tokens.

        A pytree: the first axis of every array has the rows, each with the same number of consecutive entries (a
        key-value head each, say); a row of zeros is an empty one. One other axis may have the slots. The only scalar,
        common to all rows, is the number of slots in use.
        """
        ...


class Place(Protocol):
    """Where a parameter lives."""

    def __call__(self, axes: Axes | None, shape: tuple[int, ...]) -> jax.sharding.Sharding | None:
        """Return the sharding of a parameter with these logical axes, or None for the default device."""
        ...


class ValueHead(NamedTuple):
    """What makes a number of a hidden state h: w · h + b."""

    weight: Float[np.ndarray, "width"]
    bias: float


class ModelMaker(Protocol):
    """Kind `model`: an architecture, and where its weights come from.

    One that can have a head for numbers beside its weights, as a reward model has, has a method `value_head()` too: it
    returns a `ValueHead`, or None. A critic begins with it. One that knows what ids mean to it has a method
    `check_tokenizer(tokenizer)`: it raises a ConfigError for a tokenizer that does not fit. It is asked before anything
    is trained if the model is that of a role, a teacher's, which reads the policy's ids.
    """

    def make(self, vocab_size: int, *, rngs: nnx.Rngs, place: Place) -> nnx.Module:
        """Return a randomly initialised or loaded `LanguageModel`.

        A loader puts each tensor at `place(axes, shape)` as it is read, so that no second copy is ever held; what is
        elsewhere when this returns is moved there.
        """
        ...

    def abstract(self, vocab_size: int | None) -> nnx.Module:
        """Return the same model with `jax.ShapeDtypeStruct` for arrays, reading no weights; None is its own vocabulary.

        Raises:
            ConfigError: if it has no vocabulary of its own.
        """
        ...

    def export(self, model: nnx.Module, folder: Path, *, adapter: bool) -> list[Path]:
        """Write a model that this made, with what it has learnt, for other programs; return the files of weights.

        Args:
            model: with its adapter, if it has one.
            folder: where to; made if need be.
            adapter: write the adapter alone; otherwise it is merged.

        Raises:
            ConfigError: if there is no adapter, or no format for it.
        """
        ...


class Adapter(Protocol):
    """Kind `adapter`: gives a model new parameters, of type `nnx.LoRAParam`, which are trained in place of its own."""

    def apply(self, model: nnx.Module, *, rngs: nnx.Rngs) -> nnx.Module:
        """Return the model with the adapter, computing what it computed before.

        Raises:
            ConfigError: if it finds nothing to adapt.
        """
        ...


@attrs.frozen(kw_only=True)
class Completions:
    """What an engine returns, one row per completion, prompt-major: row `p * n + i` is sample `i` of prompt `p`.

    Attributes:
        tokens: ids as sampled, the end's included.
        mask: true from the first token to the last; no token of a completion that failed.
        logps: log-probabilities at the sampling temperature, zero outside the mask. They are over the support, what
            top-k, top-p and min-p left of the vocabulary, and so say how likely the draw was; with `sampling.logps =
            'vocabulary'` they are over the whole vocabulary, as the trainer's own scores are. Without such a cut the
            two are one. At temperature 0 they are over the vocabulary at temperature 1.
        finish: why each row ended, a `Finish`.
        versions: the version of the weights that each row was drawn with.
    """

    tokens: Int[np.ndarray, "seq token"]
    mask: Bool[np.ndarray, "seq token"]
    logps: Float[np.ndarray, "seq token"]
    finish: Shaped[np.ndarray, "seq"]
    versions: Int[np.ndarray, "seq"]

    @property
    def truncated(self) -> Bool[np.ndarray, "seq"]:
        """Which rows hit the length limit."""
        return self.finish == "length"


class RolloutEngine(Protocol):
    """An open engine."""

    def generate(
        self,
        prompt_tokens: Int[np.ndarray, "prompt position"],
        prompt_mask: Bool[np.ndarray, "prompt position"],
        keys: Key[Array, "prompt sample"],
        sampling: Sampling,
    ) -> Completions:
        """Sample one completion for each key.

        The same prompt, key and weights give the same completion. An engine whose class declares `batch_invariant`
        promises that the rest of the batch has no influence on it.

        A completion that cannot be made ends with `finish` 'error' and an empty mask, and costs the others nothing.

        Raises:
            RunError: if every completion failed, or the engine is closed.
        """
        ...

    def sync(self, weights: Weights, version: int) -> None:
        """Use these weights from now on, and call them `version`."""
        ...

    def close(self) -> None:
        """Free what the engine holds; a second call does nothing."""
        ...


class Rollout(Protocol):
    """Kind `rollout`: opens an engine.

    A class may declare what it promises, `declares = {"batch_invariant": True}`; `dovetail_kit.rollout` checks it.
    """

    def check(self) -> None:
        """Refuse now, before anything is loaded, if what it needs is not there.

        Raises:
            ConfigError: with what to install, or which setting to mend.
        """
        ...

    def open(self, graphdef: Any, weights: Weights, tokenizer: Tokenizer) -> RolloutEngine:
        """Return an engine that samples from `nnx.merge(graphdef, *weights)`, which are version 0."""
        ...

    def open_folder(self, folder: Path, tokenizer: Tokenizer) -> RolloutEngine:
        """Return an engine that samples from the model in a Hugging Face folder, which is version 0."""
        ...


class RewardManager(Protocol):
    """Kind `reward_manager`: turns the table of rewards into one score per completion."""

    def __call__(
        self, score_table: Float[np.ndarray, "seq reward"], reward_names: tuple[str, ...]
    ) -> Float[np.ndarray, "seq"]:
        """Combine; NaN in the table means that the reward abstained."""
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
        """Return the next state, given the scores of the completions of each chosen prompt; NaN is no score.

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


class Follower(Protocol):
    """Kind `follower`: how the weights of a model role that is not trained move after each step.

    A class that reads `weights`, `policy` and `step`. One that never changes them declares `constant=True`; weights
    that move are saved in checkpoints.
    """

    def __call__(self, weights: Any, policy: Any, step: Int[Array, ""]) -> Any:
        """Return the next weights, a pytree of the same shapes and types.

        Args:
            weights: the role's.
            policy: the policy's after the step.
            step: how many steps are done.
        """
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


class StatefulAdvantage(Protocol):
    """Kind `advantage`, of an estimator that remembers: a baseline over the whole run, say. Saved in checkpoints.

    A class whose `__call__` reads the field `state` among others. `update` reads the same fields, after the advantages
    are estimated. Both are pure, as they are traced, and see rows with an empty mask that must count for nothing.
    """

    def init(self, roles: int) -> Any:
        """Return the first state, a pytree of arrays; `roles` is how many values `role_ids` has."""
        ...

    @property
    def update(self) -> Callable[..., Any]:
        """Return the next state, of the same shapes and types."""
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
