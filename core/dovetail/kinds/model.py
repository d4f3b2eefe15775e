"""The kinds that models are made of, and how they are trained or follow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol

from dovetail.kinds.kind import Kind

if TYPE_CHECKING:
    from pathlib import Path

    import jax
    import numpy as np
    from flax import nnx
    from jaxtyping import Array, Bool, Float, Int

__all__ = ["Adapter", "Axes", "Follower", "LanguageModel", "ModelMaker", "Place", "ValueHead", "Weights"]

MODEL: Final = Kind(
    name="model",
    summary="architecture and loader",
    setting="train.model",
    default="decoder",
    protocol="dovetail.kinds.model:ModelMaker",
    scaffold="class",
)

ARCHITECTURE: Final = Kind(
    name="architecture",
    summary="config.json of a model folder -> what its decoder is",
)

ADAPTER: Final = Kind(
    name="adapter",
    summary="what is trained in place of a model's own parameters",
    setting="train.adapter",
    protocol="dovetail.kinds.model:Adapter",
    scaffold="class",
)

FOLLOWER: Final = Kind(
    name="follower",
    summary="how the weights of a model role that is not trained move: weights, policy, step -> weights",
    protocol="dovetail.kinds.model:Follower",
    scaffold="class",
)

OPTIMIZER: Final = Kind(
    name="optimizer",
    summary="learning rate -> optax gradient transformation",
    setting="train.optimizer",
    default="adamw",
)

LR_SCHEDULE: Final = Kind(
    name="lr_schedule",
    summary="step, total_steps -> factor of the learning rate",
    setting="train.lr_schedule",
    default="warmup_cosine",
)

KINDS: Final = (MODEL, ARCHITECTURE, ADAPTER, FOLLOWER, OPTIMIZER, LR_SCHEDULE)


Axes = tuple[str | None, ...]
"""The logical axis of each dimension of a parameter: `vocab`, `width`, `ffn`, `heads`, `kv_heads`; None is not cut."""


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
    dimension; a mesh shards by these names. One with an attribute `heads`, how many its layers have, is refused on a
    mesh that would cut one.

    One that is trained with dropout has a true attribute `has_dropout`; its `__call__` then also takes `keys`, one
    random key for each row of `tokens`. They are given in the forward passes of training and in no other.

    One that can compute the same in several ways has an attribute `modes`, their names from the fastest to the one that
    keeps least for the backward pass, and a method `in_mode(mode)`, which returns the model computing so. A run takes
    the first with which a step fits the memory.
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

    def export(
        self, model: nnx.Module, folder: Path, *, adapter: bool, dtype: Literal["float32", "bfloat16"] | None = None
    ) -> list[Path]:
        """Write a model that this made, with what it has learnt, for other programs; return the files of weights.

        Args:
            model: with its adapter, if it has one.
            folder: where to; made if need be.
            adapter: write the adapter alone; otherwise it is merged, with a `DovetailWarning` if rounding loses much
                of it.
            dtype: of the parameters; None: the one they have. It is given only where somebody asks for it.

        Raises:
            ConfigError: if there is no adapter, or no format for it, or not in this type.
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
