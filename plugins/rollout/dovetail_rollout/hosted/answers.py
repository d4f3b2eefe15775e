"""What servers answer, checked before it is used: whatever they say, a run is told in one line."""

from __future__ import annotations

import math
from typing import Any, Final

from dovetail_rollout.hosted.http import Refused

ENDS: Final = ("stop", "length", None)
"""Why vLLM says that a completion has ended; None is one that goes on, in a stream."""
SHOWN: Final = 100
"""Characters of an answer in a message."""


def choices_of(found: Any, *, streamed: bool = False) -> list[tuple[list[int], list[float]]]:
    """Return the ids and log-probabilities of each choice in an answer of the route for completions.

    Args:
        found: the JSON; what is asked for is one choice.
        streamed: whether it is a part of an answer, which may have no choice.

    Raises:
        Refused: if it says anything else.

    >>> choices_of({"choices": [{"token_ids": [7], "logprobs": {"token_logprobs": [-0.5]}}]})
    [([7], [-0.5])]
    """
    choices = found.get("choices") if isinstance(found, dict) else None
    if not isinstance(choices, list) or not (len(choices) == 1 or (streamed and not choices)):
        raise _odd("choices", choices, "a list of one")
    return [_choice(each) for each in choices]


def tokens_of(tokens: Any, logps: Any) -> tuple[list[int], list[float]]:
    """Return the ids and log-probabilities of a completion.

    Raises:
        Refused: if they are anything but whole numbers, and as many finite numbers.
    """
    if not isinstance(tokens, list) or not all(type(token) is int for token in tokens):
        raise _odd("token ids", tokens, "a list of whole numbers")
    if not isinstance(logps, list) or not all(type(logp) in (int, float) and math.isfinite(logp) for logp in logps):
        raise _odd("log-probabilities", logps, "a list of finite numbers")
    if len(logps) != len(tokens):
        raise Refused(200, f"{len(logps)} log-probabilities for {len(tokens)} tokens")
    return tokens, [float(logp) for logp in logps]


def _choice(choice: Any) -> tuple[list[int], list[float]]:
    if not isinstance(choice, dict):
        raise _odd("choices", [choice], "a list of objects")
    if (end := choice.get("finish_reason")) not in ENDS:
        raise _odd("finish_reason", end, "'stop' or 'length'")
    logprobs = choice.get("logprobs")
    return tokens_of(choice.get("token_ids"), logprobs.get("token_logprobs") if isinstance(logprobs, dict) else None)


def _odd(what: str, found: Any, wanted: str) -> Refused:
    return Refused(200, f"{what}: {repr(found)[:SHOWN]}, not {wanted}")
