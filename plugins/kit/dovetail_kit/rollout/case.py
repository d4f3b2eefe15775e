"""An engine with the model that it must agree with, and a tokenizer without text."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import attrs
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Bool, Float, Int, Key

from dovetail.config.settings import Sampling
from dovetail.protocols import Completions, Continuing, Rollout, RolloutEngine, Tokenizer, Turns, Weights

PROMPTS: Final = 4
SAMPLES: Final = 8
LENGTH: Final = 6
"""The number of positions in a prompt, including padding."""
MAX_TOKENS: Final = 8
LONG: Final = 200
"""The number of tokens in a prompt that fills a block of any prefix cache: vLLM's have 16 tokens, on CPUs 128."""


@attrs.frozen
class Numbers:
    """A tokenizer without text: token 7 is '7', and spaces separate numbers."""

    vocab_size: int = 13
    pad_id: int = 0
    eos_ids: tuple[int, ...] = (1,)

    def encode(self, text: str) -> list[int]:
        """Return the numbers."""
        return [int(word) for word in text.split()]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the numbers with a space before each, without padding and EOS."""
        return "".join(f" {token}" for token in ids if token not in (self.pad_id, *self.eos_ids))

    def save(self, folder: Path) -> None:
        """Write nothing: there is nothing to save."""


@attrs.frozen(kw_only=True)
class EngineCase:
    """An engine to check, and the model that it must agree with.

    Attributes:
        open: opens the engine with `weights`.
        graphdef: the structure of the model, with the tokenizer's vocabulary. Some completions of at most 8 tokens
            should end with an EOS, and some should not.
        weights: the weights of version 0.
        other: the weights to sync.
        tokenizer: what the engine reads and writes text with.
        claims: the claims of the engine with its hyperparameters.
        tolerance: for log-probabilities, in nats; 1e-4 for float32, about 0.05 for bfloat16.
    """

    open: Callable[[], RolloutEngine]
    graphdef: Any = attrs.field(repr=False)
    weights: Weights = attrs.field(repr=False)
    other: Weights = attrs.field(repr=False)
    tokenizer: Tokenizer
    claims: Mapping[str, Any] = MappingProxyType({})
    tolerance: float = 1e-4

    @classmethod
    def of(
        cls, rollout: Rollout, model: nnx.Module, other: nnx.Module, tokenizer: Tokenizer, *, tolerance: float = 1e-4
    ) -> EngineCase:
        """Return the case of a component with its hyperparameters set."""
        graphdef, weights, frozen = nnx.split(model, nnx.Param, ...)
        _, theirs, rest = nnx.split(other, nnx.Param, ...)
        return cls(
            open=lambda: rollout.open(graphdef, Weights(weights, frozen), tokenizer),
            graphdef=graphdef,
            weights=Weights(weights, frozen),
            other=Weights(theirs, rest),
            tokenizer=tokenizer,
            claims={**getattr(type(rollout), "declares", {}), **getattr(rollout, "claims", {})},
            tolerance=tolerance,
        )

    def sharing(self, engine: RolloutEngine) -> EngineCase:
        """Return a case in which all checks except `check_close` share one open engine, for engines that open slowly.

        Each `open` syncs the first weights again, and `close` leaves the engine open.
        """

        def view() -> RolloutEngine:
            engine.sync(self.weights, 0)
            return _TurnsView(engine) if isinstance(engine, Continuing) else _View(engine)

        return attrs.evolve(self, open=view)

    def prompts(self) -> tuple[Int[np.ndarray, "prompt position"], Bool[np.ndarray, "prompt position"]]:
        """Return prompts of several lengths, padded on the left, and their mask."""
        special = {self.tokenizer.pad_id, *self.tokenizer.eos_ids}
        ids = [token for token in range(self.tokenizer.vocab_size) if token not in special]
        tokens = np.random.default_rng(0).choice(ids, (PROMPTS, LENGTH))
        mask = np.arange(LENGTH) >= np.array([0, 1, 3, LENGTH - 1])[:, None]
        return np.where(mask, tokens, self.tokenizer.pad_id), mask

    def long_prompt(self) -> tuple[Int[np.ndarray, "prompt position"], Bool[np.ndarray, "prompt position"]]:
        """Return a prompt of `LONG` tokens, which are those of the other prompts in turn, and its mask."""
        tokens, mask = self.prompts()
        return np.resize(tokens[mask], (1, LONG)), np.ones((1, LONG), bool)

    def generate(
        self, engine: RolloutEngine, sampling: Sampling, keys: Key[Array, "prompt sample"] | None = None
    ) -> Completions:
        """Sample completions of the prompts, with the usual keys unless others are given."""
        return engine.generate(*self.prompts(), make_keys() if keys is None else keys, sampling)

    def logits(
        self, completions: Completions, weights: Weights, prompts: tuple[np.ndarray, np.ndarray] | None = None
    ) -> Float[np.ndarray, "seq token vocab"]:
        """Return the model's own logits at each token of the completions, computed without a cache.

        `prompts` are tokens and mask of the prompts, if they are not the usual ones.
        """
        prompts = prompts or self.prompts()
        tokens, mask = (np.repeat(array, len(completions.tokens) // len(array), axis=0) for array in prompts)
        together = (
            np.concatenate([tokens, completions.tokens], axis=1),
            np.concatenate([mask, completions.mask], axis=1),
        )
        return np.asarray(_forward(self.graphdef, weights, *together))[:, tokens.shape[1] - 1 : -1]


@attrs.frozen
class _View:
    """An open engine that stays open when it is closed."""

    engine: RolloutEngine

    def generate(
        self,
        prompt_tokens: Int[np.ndarray, "prompt position"],
        prompt_mask: Bool[np.ndarray, "prompt position"],
        keys: Key[Array, "prompt sample"],
        sampling: Sampling,
        **options: Any,
    ) -> Completions:
        """Ask the engine."""
        return self.engine.generate(prompt_tokens, prompt_mask, keys, sampling, **options)

    def sync(self, weights: Weights, version: int) -> None:
        """Tell the engine."""
        self.engine.sync(weights, version)

    def close(self) -> None:
        """Leave it open."""


@attrs.frozen
class _TurnsView(_View):
    """An open engine that continues episodes, and stays open when it is closed."""

    def turns(self, *arguments: Any, **options: Any) -> Turns | None:
        """Ask the engine."""
        engine: Any = self.engine
        return engine.turns(*arguments, **options)


def make_keys(seed: int = 0, prompts: int = PROMPTS, samples: int = SAMPLES) -> Key[Array, "prompt sample"]:
    """Return a key for each completion."""
    return jax.random.split(jax.random.key(seed), (prompts, samples))


@functools.partial(jax.jit, static_argnums=0)
def _forward(graphdef: Any, weights: Weights, tokens: Array, mask: Array) -> Float[Array, "seq token vocab"]:
    model: Any = nnx.merge(graphdef, *weights)
    return model.logits(model(tokens, mask)[0]).astype(jnp.float32)
