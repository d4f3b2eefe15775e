"""Process rewards: rewards for the tokens of a completion, in addition to its score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import attrs
import numpy as np
from jaxtyping import Bool, Float

from dovetail.errors import RewardError
from dovetail.host.rewards import call_reward, given_to_rewards, shown
from dovetail.protocols import Completions, Example, Tokenizer
from dovetail.step.parts import Part

ENDS: Final = "ends"
"""A process reward that reads this gets, for each completion, the number of characters of its text up to and including
each token, so that it can map positions in the text to tokens."""

WINDOW: Final = 16
"""The least number of preceding tokens that are decoded with a token to find its text."""


@attrs.frozen(kw_only=True)
class ProcessScorer:
    """The chosen process rewards, each built once; the result is the sum of their values, weighted by their `coef`."""

    rewards: tuple[Part, ...]
    tokenizer: Tokenizer

    @cached_property
    def _functions(self) -> tuple[Any, ...]:
        return tuple(part.build() for part in self.rewards)

    def __call__(
        self, examples: Sequence[Example], texts: Sequence[str], drawn: Completions, group_size: int
    ) -> tuple[Float[np.ndarray, "seq token"], dict[str, Float[np.ndarray, "seq"]]]:
        """Score the tokens of completions.

        Returns:
            The sum of the rewards, per token; and metrics per completion: the total of each reward under its name, and
            its own metrics as `REWARD/METRIC`, NaN for completions without the metric.

        Raises:
            RewardError: if a reward raises, or returns anything but a finite number for each policy token.
        """
        given = given_to_rewards(examples, texts, drawn, group_size)
        if any(ENDS in part.component.reads for part in self.rewards):
            given[ENDS] = [
                _ends(row[mask].tolist(), self.tokenizer) for row, mask in zip(drawn.tokens, drawn.mask, strict=True)
            ]
        total = np.zeros(drawn.mask.shape, np.float32)
        metrics = {}
        for part, function in zip(self.rewards, self._functions, strict=True):
            returned, measured = call_reward(part, function, examples, given, "list")
            name = part.component.name
            found = _on_tokens(returned, part, given, drawn.mask)
            total += np.float32(part.floats["coef"]) * found
            metrics |= {name: found.sum(axis=1, dtype=np.float64)} | measured
        return total, metrics


def _on_tokens(
    returned: Sequence[Any], part: Part, given: Mapping[str, list[Any]], mask: Bool[np.ndarray, "seq token"]
) -> Float[np.ndarray, "seq token"]:
    """Put the numbers of a process reward on the policy tokens; None for a completion means zeros."""
    found = np.zeros(mask.shape, np.float32)
    for row, (values, own) in enumerate(zip(returned, mask, strict=True)):
        if values is not None:
            found[row, own] = _numbers(values, int(own.sum()), part, row, given)
    return found


def _numbers(values: Any, count: int, part: Part, row: int, given: Mapping[str, list[Any]]) -> np.ndarray:
    try:
        numbers = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        numbers = np.full(1, np.nan)
    if numbers.shape != (count,) or not np.isfinite(numbers).all():
        raise RewardError(
            f"process_reward {part.component.name} gave {shown(repr(values))} to sample {row}, completion"
            f" {shown(given['completions'][row])}; return a finite number for each of its {count} tokens, or"
            f" None{part.component.place}"
        )
    return numbers


def _ends(ids: list[int], tokenizer: Tokenizer) -> list[int]:
    """Return the length of the decoded text, in characters, after each token.

    A token is decoded together with preceding tokens, because alone it may not be valid text or may lose a space. A few
    preceding tokens are enough; decoding every prefix as a whole would take quadratic time.
    """
    found: list[int] = []
    for start in range(0, len(ids), WINDOW):
        stop, first = min(start + WINDOW, len(ids)), max(0, start - WINDOW)
        whole, before = len(tokenizer.decode(ids[:stop])), found[-1] if found else 0
        shift = before - len(tokenizer.decode(ids[first:start]))
        found += [shift + len(tokenizer.decode(ids[first : end + 1])) for end in range(start, stop)]
        if found[-1] != whole:  # this tokenizer's text depends on earlier tokens, too
            found[start:] = [len(tokenizer.decode(ids[: end + 1])) for end in range(start, stop)]
    return found
