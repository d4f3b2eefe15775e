"""The kinds around sampling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

import attrs

from dovetail.kinds.kind import Kind

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from jaxtyping import Array, Bool, Float, Int, Key, Shaped

    from dovetail.config.settings import Sampling
    from dovetail.kinds.data import Tokenizer
    from dovetail.kinds.model import Weights

__all__ = ["Completions", "Finish", "Rollout", "RolloutEngine"]

ROLLOUT: Final = Kind(
    name="rollout",
    summary="the engine that samples completions",
    stage="drawn",
    setting="train.rollout",
    default="vanilla",
    placed=True,
    protocol="dovetail.kinds.rollout:Rollout",
    scaffold="class",
)

SAMPLING_PRESET: Final = Kind(
    name="sampling_preset",
    summary="values for the sampling settings that a config leaves open",
    scaffold="class",
)

KINDS: Final = (ROLLOUT, SAMPLING_PRESET)


Finish = Literal["eos", "stop", "length", "error"]
"""Why a completion ended: with an EOS, with a stop string in its text, at `max_tokens`, or because it failed."""


@attrs.frozen(kw_only=True)
class Completions:
    """What an engine returns, one row per completion, prompt-major: row `p * n + i` is sample `i` of prompt `p`.

    Attributes:
        tokens: ids as sampled, the end's included.
        mask: the field `mask`: true where the policy wrote the token, its EOS included; no token of a completion that
            failed.
        logps: log-probabilities at the sampling temperature, zero outside the mask. They are over the support, what
            top-k, top-p and min-p left of the vocabulary, and so say how likely the draw was; with `sampling.logps =
            'vocabulary'` they are over the whole vocabulary, as the trainer's own scores are. Without such a cut the
            two are one. At temperature 0 they are over the vocabulary at temperature 1.
        finish: why each row ended, a `Finish`.
        versions: the version of the weights that each row was drawn with.
        observed: true on tokens between the policy's turns: what tools and environments say, and what a chat template
            writes around it. None of them is in the mask.
        turns: which turn a token belongs to; an observation to the turn that it follows.
        support: ids that each token was chosen among, where they were asked for; -1 fills up, and stands for all of
            them outside the mask.
    """

    tokens: Int[np.ndarray, "seq token"]
    mask: Bool[np.ndarray, "seq token"]
    logps: Float[np.ndarray, "seq token"]
    finish: Shaped[np.ndarray, "seq"]
    versions: Int[np.ndarray, "seq"]
    observed: Bool[np.ndarray, "seq token"] = attrs.field(
        default=attrs.Factory(lambda self: self.mask & False, takes_self=True)
    )
    turns: Int[np.ndarray, "seq token"] = attrs.field(
        default=attrs.Factory(lambda self: self.mask.astype("int32") * 0, takes_self=True)
    )
    support: Int[np.ndarray, "seq token candidate"] | None = None

    @property
    def truncated(self) -> Bool[np.ndarray, "seq"]:
        """Which rows hit the length limit."""
        return self.finish == "length"

    @classmethod
    def joined(cls, parts: Sequence[Completions]) -> Completions:
        """Return the completions of several calls, one after another."""
        import numpy as np

        columns: dict[str, list[Any]] = {name: [getattr(p, name) for p in parts] for name in attrs.fields_dict(cls)}
        joined: dict[str, Any] = {
            name: None if column[0] is None else np.concatenate(column) for name, column in columns.items()
        }
        return cls(**joined)

    def rows(self, which: Any) -> Completions:
        """Return some rows, by index or slice."""
        columns: dict[str, Any] = {name: getattr(self, name) for name in attrs.fields_dict(type(self))}
        chosen: dict[str, Any] = {name: None if column is None else column[which] for name, column in columns.items()}
        return Completions(**chosen)


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

        An engine whose class declares `keeps_support = K` takes `keep_support=True` too, with a `sampling.top_k` of at
        most K, and returns `Completions.support`.

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

    A class may declare what it promises, `declares = {"batch_invariant": True}`; `dovetail_kit.rollout` checks it. One
    that declares `versions` is used with `train.staleness`: it may sample in a thread of its own while the trainer
    updates, and what it samples is of the weights that it was given last. One that declares `placed` samples on the
    devices that its weights are on, as `rollout/mesh` says; its methods are called under their mesh.
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
