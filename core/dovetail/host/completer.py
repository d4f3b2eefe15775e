"""Completes examples: renders, encodes and samples them, and continues after a turn if an agent loop says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import attrs
import numpy as np
from jaxtyping import Array, Bool, Int, Key

from dovetail.errors import DataError
from dovetail.host.episodes import Generators, Rounds
from dovetail.host.prompts import encode
from dovetail.host.records import OF_PROMPTS, selected
from dovetail.protocols import Completions, Episodes, Example, OpenLoop, RolloutEngine, Sampling, Tokenizer


@attrs.frozen(kw_only=True)
class Completed:
    """Examples with completions, prompt-major: row p·n + i answers prompt p.

    Attributes:
        examples: one for each prompt; its `prompt` is the text that the model read.
        asked: the same examples before an agent loop rendered them to that text.
        episodes: the additional data of an agent loop with several turns; None without one.
    """

    examples: tuple[Example, ...] = attrs.field(metadata=OF_PROMPTS)
    asked: tuple[Example, ...] = attrs.field(metadata=OF_PROMPTS)
    completions: Completions
    prompt_tokens: Int[np.ndarray, "prompt position"] = attrs.field(metadata=OF_PROMPTS)
    prompt_mask: Bool[np.ndarray, "prompt position"] = attrs.field(metadata=OF_PROMPTS)
    episodes: Episodes | None = None

    @property
    def samples(self) -> int:
        """The number of completions of each prompt."""
        return len(self.completions.tokens) // len(self.examples)

    def of(self, prompts: Int[np.ndarray, "prompt"]) -> Completed:
        """Return some prompts with their completions, in the given order."""
        return selected(self, prompts, self.samples)


@attrs.frozen(kw_only=True)
class Completer:
    """An open engine, with everything needed to complete examples."""

    engine: RolloutEngine
    tokenizer: Tokenizer
    max_prompt_tokens: int
    loop: OpenLoop | None = None

    def __call__(
        self,
        examples: Sequence[Example],
        keys: Key[Array, "prompt sample"],
        sampling: Sampling,
        options: Mapping[str, Any] = MappingProxyType({}),
    ) -> Completed:
        """Sample a completion or play an episode for each key.

        The options of `RolloutEngine.generate` are only taken by engines that declare them.
        """
        if self.loop is None:
            tokens, mask = encode([e["prompt"] for e in examples], self.tokenizer, self.max_prompt_tokens)
            drawn = self.engine.generate(tokens, mask, keys, sampling, **options)
            examples = tuple(examples)
            return Completed(
                examples=examples, asked=examples, completions=drawn, prompt_tokens=tokens, prompt_mask=mask
            )
        running = self.loop.begin(examples, keys.shape[1], Generators.of(keys))
        tokens, mask = self._encoded(running.prompts)
        play = Rounds(
            engine=self.engine, pad_id=self.tokenizer.pad_id, max_turn_tokens=self.loop.max_turn_tokens, options=options
        )
        tape, full = play(tokens, mask, keys, sampling, running.then, getattr(running, "alone", None))
        episodes = running.result(full.tolist())
        return Completed(
            examples=tuple({**e, "prompt": p} for e, p in zip(examples, running.prompts, strict=True)),
            asked=tuple(examples),
            completions=tape.completions(episodes.failed),
            prompt_tokens=tokens,
            prompt_mask=mask,
            episodes=episodes,
        )

    def _encoded(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Encode prompts that an environment has extended; they were not measured before, and are never cut."""
        for text in texts:
            if (length := len(self.tokenizer.encode(text))) > self.max_prompt_tokens:
                raise DataError(
                    f"a prompt has {length} tokens with what the interaction's reset and the tools add to it; raise"
                    f" train.max_prompt_tokens = {self.max_prompt_tokens}. It begins with {text[:80]!r}"
                )
        return encode(texts, self.tokenizer, self.max_prompt_tokens)
