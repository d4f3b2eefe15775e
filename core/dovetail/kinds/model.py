"""The kinds that make up a model, and those that determine how its weights change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, runtime_checkable

import attrs

from dovetail.kinds.kind import Kind

if TYPE_CHECKING:
    from pathlib import Path

    import jax
    import numpy as np
    import optax
    from flax import nnx
    from jaxtyping import Array, Bool, Float, Int

    from dovetail.kinds.data import Tokenizer

__all__ = [
    "Adapter",
    "Axes",
    "ChecksTokenizer",
    "Follower",
    "LanguageModel",
    "ModelMaker",
    "Optimizer",
    "Place",
    "Traits",
    "ValueHead",
    "Weights",
    "WithValueHead",
]

MODEL: Final = Kind(
    name="model",
    summary="architecture and loader",
    setting="train.model",
    default="decoder",
    protocol="dovetail.kinds.model:ModelMaker",
    optional=("check_tokenizer", "value_head"),
    scaffold="class",
)

ARCHITECTURE: Final = Kind(name="architecture", summary="config.json of a model folder -> description of its decoder")

ADAPTER: Final = Kind(
    name="adapter",
    summary="model -> the model with new parameters, which are trained in place of its own",
    setting="train.adapter",
    protocol="dovetail.kinds.model:Adapter",
    scaffold="class",
)

FOLLOWER: Final = Kind(
    name="follower",
    summary="weights, policy, step -> next weights of a model role that is not trained",
    offers=("weights", "policy", "step"),
    protocol="dovetail.kinds.model:Follower",
    scaffold="class",
)

OPTIMIZER: Final = Kind(
    name="optimizer",
    summary="learning rate -> optax gradient transformation",
    setting="train.optimizer",
    default="adamw",
    protocol="dovetail.kinds.model:Optimizer",
)

LR_SCHEDULE: Final = Kind(
    name="lr_schedule",
    summary="step, total_steps -> factor of the learning rate",
    offers=("step", "total_steps"),
    setting="train.lr_schedule",
    default="warmup_cosine",
    protocol="dovetail.kinds.algorithm:Schedule",
)

KINDS: Final = (MODEL, ARCHITECTURE, ADAPTER, FOLLOWER, OPTIMIZER, LR_SCHEDULE)


Axes = tuple[str | None, ...]
"""The logical axis of each dimension of a parameter: `vocab`, `width`, `ffn`, `heads`, `kv_heads`, or None.

A dimension whose axis is None is not sharded.
"""


class Weights(NamedTuple):
    """A model's parameters, as in `nnx.merge(graphdef, *weights)`: those being trained, and those that never change.

    `frozen` is empty if everything is trained. With an adapter it holds the base model, of which there is only one
    copy: the reference consists of the initial `trained` and the same `frozen`.
    """

    trained: Any
    frozen: Any


class LanguageModel(Protocol):
    """A decoder: an `nnx.Module` without mutable state.

    A parameter may name its logical axes, `nnx.Param(kernel, axes=("width", "ffn"))`, with one name or None for each
    dimension; a mesh shards parameters by these names: `width` over `mesh.fsdp` and `mesh.cp`, and `vocab`, `ffn`,
    `heads` and `kv_heads` over `mesh.tp`. A dimension with another name stays whole, as one with None does.

    What a model may be able to do beside this, it says in attributes: see `Traits`.

    Attributes:
        width: the size of a hidden state.
        vocab_size: the number of token ids, and of logits.
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
        """Return the hidden states of `tokens` after the final norm, and the updated cache.

        Args:
            tokens: token ids.
            mask: false on tokens that must not be attended to (left padding). Positions count the true tokens of a
                row, including those of the prefix and of the cache.
            cache: from `init_cache` or an earlier call; the keys and values of `tokens` are appended to it. Without one
                the second part of the result is None. A recurrent model keeps the state of each row instead, which
                false tokens leave as it is. In an empty cache it is not yet that of the prefix: the first call with
                true tokens begins there.
            prefix: a cache that another call returned for `prompt` rows, of which `seq` is always a multiple: row `i`
                of `tokens` continues row `i // (seq // prompt)` of the prefix. Its keys and values are not copied for
                each row, and gradients flow through them. It is read and not returned: the second part of the result
                is `cache` alone, None without one. `docs/models.md` shows all three uses.
        """
        ...

    def logits(self, hidden: Float[Array, "*batch width"]) -> Float[Array, "*batch vocab"]:
        """Project hidden states to float32 logits."""
        ...

    def init_cache(self, batch: int, length: int) -> Any:
        """Return an empty cache for `batch` rows of at most `length` tokens.

        A pytree, such as a dict of arrays. In each array the first axis runs over the rows, each with the same number
        of consecutive entries (for example one per key-value head), and zeros stand for an empty row; one other axis
        may run over the slots, one per token. One scalar, and no other, is the number of slots in use, shared by all
        rows: a recurrent model has it too, and counts every token that it was given, whether its mask is true or not.
        """
        ...


@attrs.frozen(kw_only=True)
class Traits:
    """What a `LanguageModel` may have beside its protocol: attributes of the model, each with what its absence means.

    Attributes:
        heads: the number of heads in its layers; a mesh that would split a head is refused. Without it none is.
        has_dropout: whether it is trained with dropout. Its `__call__` then also takes `keys`, a random key for each
            token, [seq, token]. They are passed only in the forward passes of training. What is dropped at a token must
            depend on nothing but its key, so that it does not matter where a text is packed.
        packs: whether it reads several texts in a row. Its `__call__` then also takes `texts`, the number of each
            token's text, [seq, token]. The tokens of a text are consecutive; they see and count those of the prefix and
            of their own text. Texts are packed only without `cache`.
        choices: how many discrete choices it makes at each token, such as the experts of a mixture. Its `__call__` then
            also takes `choices`, integers [seq, token, choice], and computes with these choices instead of its own; at
            tokens where they are -1 it chooses for itself. The result then has a third part of the same shape: the
            given choices, with -1 for those that the model would not make itself, and its own where none are given.
        modes: in which modes it can trade speed for memory: names from the fastest to the one that keeps the fewest
            activations for the backward pass. It then has a method `in_mode(mode)`, which returns the model in that
            mode. A run uses the first in which a step fits in memory.
    """

    heads: int | None = None
    has_dropout: bool = False
    packs: bool = False
    choices: int = 0
    modes: tuple[str, ...] = ()

    @classmethod
    def of(cls, model: Any) -> Traits:
        """Return those of a model."""
        return cls(**{name: getattr(model, name) for name in attrs.fields_dict(cls) if hasattr(model, name)})


class Place(Protocol):
    """Decides on which devices a parameter is placed."""

    def __call__(self, axes: Axes | None, shape: tuple[int, ...]) -> jax.sharding.Sharding | None:
        """Return the sharding of a parameter with these logical axes, or None for the default device."""
        ...


class ValueHead(NamedTuple):
    """A linear head that maps a hidden state h to a scalar: w · h + b.

    Attributes:
        weight: w, [width].
        bias: b.
    """

    weight: Float[np.ndarray, "width"]
    bias: float


class ModelMaker(Protocol):
    """Kind `model`: an architecture, and where its weights come from.

    It may have the methods of `WithValueHead` and `ChecksTokenizer` too.
    """

    def make(self, vocab_size: int, *, rngs: nnx.Rngs, place: Place) -> nnx.Module:
        """Return a randomly initialised or loaded `LanguageModel`.

        A loader should put each tensor at `place(axes, shape)` as it is read, so that a second copy never exists;
        parameters that are elsewhere when this returns are moved there, so what is made from random numbers may ignore
        `place`. The engine always passes it.
        """
        ...

    def abstract(self, vocab_size: int | None) -> nnx.Module:
        """Return the same model with `jax.ShapeDtypeStruct` in place of arrays, without reading any weights.

        `nnx.eval_shape(lambda: self.make(vocab_size, rngs=nnx.Rngs(0)))` does so, if `make` reads none.

        Args:
            vocab_size: the number of token ids; None for the model's own.

        Raises:
            ConfigError: if `vocab_size` is None and the model does not determine it.
        """
        ...

    def export(
        self, model: nnx.Module, folder: Path, *, adapter: bool, dtype: Literal["float32", "bfloat16"] | None = None
    ) -> list[Path]:
        """Write a trained model that `make` returned, for other programs to load; return the weight files.

        The format is that of these programs: Dovetail reads its checkpoints, and no export. Engines outside of it, such
        as `vllm`, are given a Hugging Face folder.

        Args:
            model: the model, with its adapter if it has one.
            folder: the destination; created if necessary.
            adapter: write only the adapter; otherwise it is merged into the weights, with a `DovetailWarning` if
                rounding loses much of it.
            dtype: the dtype of the written parameters; None keeps the one they have. Passed only if requested.

        Raises:
            ConfigError: if there is no adapter to write, or no format for it, or the dtype is not supported.
        """
        ...


@runtime_checkable
class WithValueHead(Protocol):
    """A `ModelMaker` whose weights may come with a scalar head, as those of a reward model do."""

    def value_head(self) -> ValueHead | None:
        """Return the head from which a critic starts; None for one of zeros."""
        ...


@runtime_checkable
class ChecksTokenizer(Protocol):
    """A `ModelMaker` that knows what ids mean to its model."""

    def check_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Refuse a tokenizer whose ids mean something else to the model.

        It is called before training starts, for every model that reads the policy's ids: a teacher's too.

        Raises:
            ConfigError: saying which ids differ.
        """
        ...


class Adapter(Protocol):
    """Kind `adapter`: adds parameters of type `nnx.LoRAParam` to a model, which are trained in place of its own."""

    def apply(self, model: nnx.Module, *, rngs: nnx.Rngs) -> nnx.Module:
        """Return the model with an adapter: a new one, which changes no output, or with `loaded=True` a trained one.

        Raises:
            ConfigError: if the model has nothing to adapt.
        """
        ...


class Optimizer(Protocol):
    """Kind `optimizer`: how gradients change the weights.

    It is built inside the compiled step, so the learning rate is a traced number. The parameters that it sees are
    float32, if need be copies of the model's, and so are the gradients.
    """

    def __call__(self, learning_rate: Float[Array, ""]) -> optax.GradientTransformation:
        """Return optax's pair of `init(params)` and `update(updates, state, params)`, whose updates are added.

        `update` always gets the parameters.

        Args:
            learning_rate: that of the step, after the schedule.
        """
        ...


class Follower(Protocol):
    """Kind `follower`: updates the weights of a model role that is not trained after each step.

    A class that reads `weights`, `policy` and `step`. A follower that never changes the weights declares
    `constant=True`; otherwise checkpoints include them.
    """

    def __call__(self, weights: Any, policy: Any, step: Int[Array, ""]) -> Any:
        """Return the next weights, a pytree with the same shapes and dtypes.

        Args:
            weights: the weights of the role.
            policy: the weights of the policy after the step.
            step: the number of steps done.
        """
        ...
