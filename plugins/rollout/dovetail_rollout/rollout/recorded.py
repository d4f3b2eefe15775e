"""Completions that the task has, instead of sampled ones: fixed preferences, logs, samples of another policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import attrs
import numpy as np

from dovetail import Chooses
from dovetail.errors import ConfigError, DataError
from dovetail.host.prompts import encode_completions
from dovetail.protocols import ASSISTANT, Completions, Continuing

if TYPE_CHECKING:
    from jaxtyping import Array, Bool, Int, Key

    from dovetail.protocols import Example, RolloutEngine, Sampling, Tokenizer, Turns, Weights


def _names(_: Any, attribute: attrs.Attribute[Any], columns: tuple[str, ...]) -> None:
    if isinstance(columns, str) or not columns or len(set(columns)) < len(columns):
        raise ConfigError(
            f"rollout.recorded.{attribute.name} = {columns!r}: name one column or several, each once, such as"
            " ('chosen', 'rejected')"
        )


@attrs.frozen(kw_only=True)
class Recorded:
    """Trains on completions that the task has, and samples only to evaluate.

    In a training step the i-th completion of a prompt is the text in the i-th of `columns`; of a single column that
    holds a list of texts, it is the i-th text. Beyond the last one a completion is missing: its mask is empty, so that
    prompts may have different numbers of completions. `train.group_size` is the greatest of these numbers; what exceeds
    it is refused rather than left out.

    A text is encoded as a demonstration is, with an EOS behind it. In place of a text there may be a conversation,
    which ends with the assistant's message: that is the completion, and the task has the messages before it as the
    prompt. What exceeds `sampling.max_tokens` is cut, without an EOS, as if it had been sampled up to that limit
    (`truncated`).

    With the loss term `dpo`, `simpo` or `orpo` and the reward `recorded` this is direct preference optimisation on a
    fixed data set: see `docs/preferences.md`. A policy gradient on such completions is a weighted likelihood, and not
    the gradient of the expected reward. Nobody knows with what probabilities they were sampled, so whatever reads
    `rollout_logps` is refused, corrections and `train.staleness` among it.

    Evaluations, and commands that complete prompts, sample with `engine`. It is opened in a run without evaluations
    too, and then does nothing.

    Args:
        columns: the columns of the task with the completions of a prompt.
        engine: the engine that samples where completions are not recorded.
    """

    columns: tuple[str, ...] = attrs.field(default=("chosen", "rejected"), validator=_names)
    engine: Annotated[Any, Chooses("rollout")] = "dovetail/vanilla"

    declares: ClassVar[MappingProxyType[str, Any]] = MappingProxyType(
        {"reads_examples": True, "reports_logps": False, "batch_invariant": True, "placed": True}
    )

    @property
    def claims(self) -> Mapping[str, Any]:
        """What the engine says of where it computes, and how many completions it decodes at a time."""
        inner = {**getattr(type(self.engine), "declares", {}), **getattr(self.engine, "claims", {})}
        return {"placed": inner.get("placed", False)} | ({"slots": inner["slots"]} if "slots" in inner else {})

    def check(self) -> None:
        """Check the requirements of the engine that samples."""
        self.engine.check()

    def open(self, graphdef: Any, weights: Weights, tokenizer: Tokenizer) -> RolloutEngine:
        """Return an engine that samples, where it has to, from `nnx.merge(graphdef, *weights)`."""
        return OpenRecorded(self.columns, self.engine.open(graphdef, weights, tokenizer), tokenizer)

    def open_folder(self, folder: Path, tokenizer: Tokenizer) -> RolloutEngine:
        """Return an engine that samples, where it has to, from the model in a Hugging Face folder."""
        return OpenRecorded(self.columns, self.engine.open_folder(folder, tokenizer), tokenizer)


@attrs.define(eq=False)
class OpenRecorded:
    """An open `Recorded`; see `dovetail.protocols.RolloutEngine`."""

    columns: tuple[str, ...]
    inner: RolloutEngine
    tokenizer: Tokenizer = attrs.field(repr=False)
    version: int = 0

    def generate(
        self,
        prompt_tokens: Int[np.ndarray, "prompt position"],
        prompt_mask: Bool[np.ndarray, "prompt position"],
        keys: Key[Array, "prompt sample"],
        sampling: Sampling,
        *,
        examples: Sequence[Example] | None = None,
        **options: Any,
    ) -> Completions:
        """Return the completions of the examples; without examples, sample.

        Raises:
            DataError: if an example has no completion, one that is neither a text nor a conversation, or more than
                there are keys; the message shows its prompt.
        """
        if examples is None:
            return self.inner.generate(prompt_tokens, prompt_mask, keys, sampling, **options)
        samples = keys.shape[1]
        texts = [text for example in examples for text in self._texts(example, samples)]
        tokens, mask = encode_completions([text or "" for text in texts], self.tokenizer, sampling.max_tokens)
        absent = np.array([text is None for text in texts])
        mask &= ~absent[:, None]
        ended = np.isin(tokens, self.tokenizer.eos_ids) & mask
        finish = np.where(absent, "error", np.where(ended.any(axis=1), "eos", "length"))
        return Completions(
            tokens=np.where(mask, tokens, np.int32(self.tokenizer.pad_id)),
            mask=mask,
            logps=np.where(mask, np.float32(np.nan), np.float32(0)),
            finish=finish,
            versions=np.full(len(tokens), self.version, np.int32),
        )

    def turns(
        self,
        prompt_tokens: Int[np.ndarray, "prompt position"],
        prompt_mask: Bool[np.ndarray, "prompt position"],
        keys: Key[Array, "prompt sample"],
        sampling: Sampling,
        max_turn_tokens: int,
        *,
        examples: Sequence[Example] | None = None,
        **options: Any,
    ) -> Turns | None:
        """Return the turns of the engine that samples, which evaluations may have.

        Raises:
            ConfigError: in a training step, whose completions have one turn.
        """
        if examples is not None:
            raise ConfigError(
                "rollout 'recorded': a completion of the task is a single turn, and train.agent_loop plays several; set"
                " train.agent_loop = 'single_turn'"
            )
        if not isinstance(self.inner, Continuing):
            return None
        return self.inner.turns(prompt_tokens, prompt_mask, keys, sampling, max_turn_tokens, **options)

    def sync(self, weights: Weights, version: int) -> None:
        """Use these weights to sample."""
        self.inner.sync(weights, version)
        self.version = version

    def close(self) -> None:
        """Close the engine that samples."""
        self.inner.close()

    def _texts(self, example: Example, samples: int) -> list[str | None]:
        """Return an example's completions, followed by None up to the number of samples."""
        found = [example[column] for column in self.columns]
        if len(self.columns) == 1 and _is_list(found[0]) and not _is_conversation(found[0]):
            found = list(found[0])
        texts = [_text(each) for each in found]
        if None in texts or not texts or len(texts) > samples:
            raise DataError(f"{self._fault(texts, found, samples)}; its prompt begins with {example['prompt'][:80]!r}")
        return [*texts, *[None] * (samples - len(texts))]

    def _fault(self, texts: Sequence[str | None], found: Sequence[Any], samples: int) -> str:
        where = f"rollout.recorded.columns = {self.columns}"
        if len(texts) > samples:
            return f"{where}: an example has {len(texts)} completions, and train.group_size is {samples}"
        shown = repr(found[texts.index(None)])[:80] if texts else "none"
        return f"{where}: a completion is a text, or a conversation that ends with the assistant's, and not {shown}"


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence | np.ndarray) and not isinstance(value, str | bytes)


def _is_conversation(value: Any) -> bool:
    return _is_list(value) and len(value) > 0 and all(isinstance(message, Mapping) for message in value)


def _text(value: Any) -> str | None:
    """Return a completion as a text; None if it is not one."""
    if _is_conversation(value):
        last = value[-1]
        value = last.get("content") if last.get("role") == ASSISTANT else None
    return value if isinstance(value, str) else None
