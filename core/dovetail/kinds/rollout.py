"""The kinds that sample completions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, runtime_checkable

import attrs

from dovetail.kinds.kind import Kind

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from jaxtyping import Array, Bool, Float, Int, Key, Shaped

    from dovetail.config.settings import Sampling
    from dovetail.kinds.data import Tokenizer
    from dovetail.kinds.model import Weights

__all__ = ["Completions", "Continuing", "Finish", "Rollout", "RolloutEngine", "Timed", "Turns"]

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
    summary="values for the sampling settings that a config does not set",
    scaffold="class",
)

KINDS: Final = (ROLLOUT, SAMPLING_PRESET)


Finish = Literal["eos", "stop", "length", "error"]
"""Why a completion ended: with an EOS, with a stop string in its text, at `max_tokens`, or with an error."""


def _of_each_token(versions: Any, completions: Any) -> Any:
    import numpy as np

    return versions if versions.ndim > 1 else np.repeat(versions[:, None], completions.tokens.shape[1], axis=1)


@attrs.frozen(kw_only=True)
class Completions:
    """The completions that an engine returns.

    One row per completion, prompt-major: row `p * n + i` is sample `i` of prompt `p`.

    Attributes:
        tokens: ids as sampled, including the EOS.
        mask: the field `mask`: true where the policy wrote the token, including its EOS; all false for a completion
            that failed.
        logps: log-probabilities in nats at the sampling temperature, zero outside the mask. By default they are over
            the support, the part of the vocabulary that top-k, top-p and min-p leave, and so are the probabilities of
            the draws. With `sampling.logps = 'vocabulary'` they are over the whole vocabulary, as the trainer's are.
            Without such a cut the two are the same. At temperature 0 they are over the vocabulary at temperature 1.
        finish: why each row ended, a `Finish`.
        versions: the version of the weights that sampled each token; it may be given as one for each row.
        observed: true on tokens between the policy's turns: the output of tools and environments, and the text that a
            chat template adds around it. None of them is in the mask.
        turns: which turn a token belongs to; an observation belongs to the turn that it follows.
        support: the ids that each token was sampled from, if requested; -1 is padding, and outside the mask all
            entries are -1.
        choices: what the model chose while it read each token, if requested; -1 where it read none, as at the last one.
        prompt_choices: the same for the tokens of the row's prompt.
    """

    tokens: Int[np.ndarray, "seq token"]
    mask: Bool[np.ndarray, "seq token"]
    logps: Float[np.ndarray, "seq token"]
    finish: Shaped[np.ndarray, "seq"]
    versions: Int[np.ndarray, "seq token"] = attrs.field(converter=attrs.Converter(_of_each_token, takes_self=True))
    observed: Bool[np.ndarray, "seq token"] = attrs.field(
        default=attrs.Factory(lambda self: self.mask & False, takes_self=True)
    )
    turns: Int[np.ndarray, "seq token"] = attrs.field(
        default=attrs.Factory(lambda self: self.mask.astype("int32") * 0, takes_self=True)
    )
    support: Int[np.ndarray, "seq token candidate"] | None = None
    choices: Int[np.ndarray, "seq token choice"] | None = None
    prompt_choices: Int[np.ndarray, "seq position choice"] | None = None

    @property
    def truncated(self) -> Bool[np.ndarray, "seq"]:
        """True on rows that hit the length limit."""
        return self.finish == "length"

    def rows(self, which: Any) -> Completions:
        """Select rows by an index array, a boolean mask or a slice."""
        columns: dict[str, Any] = {name: getattr(self, name) for name in attrs.fields_dict(type(self))}
        chosen: dict[str, Any] = {name: None if column is None else column[which] for name, column in columns.items()}
        return Completions(**chosen)


class Turns(Protocol):
    """Completions of several turns, with observations in between; see `RolloutEngine`.

    An engine that can ask for a completion's next turn while it samples others has turns with another method,

        play(then) -> None

    which is called in place of `first` and `next` if the agent loop can answer single turns (`Running.alone`). It
    samples the first turns, and has each followed as soon as it is there by `then(row, drawn)`, where `drawn` has one
    row. That returns the ids between this turn and the next with the key of the next, `keys[:1]`, or None after the
    last. It is called from several threads, once for each turn, also for one that failed. `play` raises
    `CompletionsFailed` if the last turns of all completions failed, and what `then` raises.
    """

    def first(self) -> Completions:
        """Sample the first turns."""
        ...

    def next(self, rows: Sequence[int], observed: Sequence[Sequence[int]], keys: Key[Array, "seq"]) -> Completions:
        """Sample the next turn of some completions, as `generate` would with each completion so far as a prompt.

        Args:
            rows: some of the rows of the last call, as they were numbered in the first.
            observed: for each of them, the ids between its last turn and the next.
            keys: for each of them, the key of the next turn.

        Returns:
            The next turns, in this order.

        Raises:
            CompletionsFailed: if all of them failed; other episodes may have ended before, and the run goes on.
            RunError: if the engine is closed or has other weights than for the first turns.
        """
        ...


class RolloutEngine(Protocol):
    """An open engine. It may have the methods of `Continuing` and `Timed` too."""

    def generate(
        self,
        prompt_tokens: Int[np.ndarray, "prompt position"],
        prompt_mask: Bool[np.ndarray, "prompt position"],
        keys: Key[Array, "prompt sample"],
        sampling: Sampling,
    ) -> Completions:
        """Sample one completion for each key.

        The same prompt, key and weights give the same completion. An engine whose class declares `batch_invariant`
        promises that this does not depend on the rest of the batch.

        A completion that fails gets `finish` 'error' and an empty mask; the others are not affected.

        An engine whose class declares `keeps_support = K` also takes `keep_support=True`, with a `sampling.top_k` of at
        most K, and then returns `Completions.support`.

        An engine whose class declares `keeps_choices` also takes `keep_choices=True` with a model that makes choices
        (`LanguageModel`), and then returns `Completions.choices` and `Completions.prompt_choices`.

        An engine whose class declares `in_flight` also takes `newer`, a function without arguments that returns the
        newest weights with their version if they are newer than those that it returned last, and otherwise None. The
        engine calls it from the thread that called `generate`, as often as it likes. It samples with the weights that
        it gets from the next token on that it can, and `Completions.versions` says which tokens these are.

        An engine whose class declares `reads_examples` also takes `examples`, the task's example for each prompt; in
        evaluations, and where a command completes prompts, there are none. It has a property `columns`, the names of
        the columns that it reads, which the task must have.

        An engine that did not sample its completions, and so cannot say with what probabilities, declares
        `reports_logps = False`. Its `Completions.logps` are NaN on the mask, by which a reward can tell them.

        Args:
            prompt_tokens: ids of the prompts, padded on the left.
            prompt_mask: true on the tokens of the prompts.
            keys: one random key per completion.
            sampling: temperature, cuts, length limit and stop strings.

        Raises:
            CompletionsFailed: if every completion failed.
            RunError: if the engine is closed.
        """
        ...

    def sync(self, weights: Weights, version: int) -> None:
        """Use these weights from now on, and report them as `version`."""
        ...

    def close(self) -> None:
        """Free the engine's resources; a second call does nothing."""
        ...


@runtime_checkable
class Continuing(Protocol):
    """A `RolloutEngine` that can continue completions without processing them again.

    For any other `generate` is called for every turn, with the completions so far as prompts. That suits an engine that
    compiles: rows are repeated until there are 1, 1/4, 1/16, ... of all, and each may have `max_turn_tokens`.
    """

    def turns(self, prompt_tokens: Any, prompt_mask: Any, keys: Any, sampling: Sampling, max_turn_tokens: int) -> Any:
        """Return `Turns`; None if these completions cannot be continued, so that `generate` is called.

        It takes the same arguments and options as `generate`. `sampling.max_tokens` limits a completion with all of its
        turns and observations, and a turn ends with 'length' at this limit too.
        """
        ...


@runtime_checkable
class Timed(Protocol):
    """A `RolloutEngine` that measures what it does."""

    def timings(self) -> dict[str, float]:
        """Return figures of the last call, which `timings.jsonl` has as `rollout/NAME`.

        With `seconds_per_token`, those of a completion that waits for no other, `dovetail simulate` tells what more
        engines would make shorter from what they would not.
        """
        ...


class Rollout(Protocol):
    """Kind `rollout`: opens an engine.

    A class may declare properties, `declares = {"batch_invariant": True}`, which `dovetail_kit.rollout` checks. An
    engine that declares `versions` may be used with `train.staleness`: it can sample in a separate thread while the
    trainer updates, and samples from the weights of the last `sync`. With `in_flight` it can also take newer weights in
    the middle of completions (`train.in_flight`). An engine that declares `placed` samples on the devices of its
    weights, as set by `rollout/mesh`; its methods are called under their mesh. Any other computes elsewhere: with
    `train.staleness`, or in a run of several processes, its weights are arrays of numpy. `slots` is the number of
    completions that it decodes at a time, from which the plan computes the size of its cache. If a claim depends on
    hyperparameters, the class also has a property `claims`, whose values replace those of `declares`.
    """

    def check(self) -> None:
        """Check the engine's requirements, before any model is loaded.

        Raises:
            ConfigError: if one is not met, with what to install or which setting to change.
        """
        ...

    def open(self, graphdef: Any, weights: Weights, tokenizer: Tokenizer) -> RolloutEngine:
        """Return an engine that samples from `nnx.merge(graphdef, *weights)`; these weights are version 0."""
        ...

    def open_folder(self, folder: Path, tokenizer: Tokenizer) -> RolloutEngine:
        """Return an engine that samples from the model in a Hugging Face folder; its weights are version 0."""
        ...
