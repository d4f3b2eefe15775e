"""Completions that go on under newer weights: what was sampled of each so far, and by which weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import attrs

from dovetail_rollout.hosted.host import Answer, Failure, Request

STRIDE: Final = 0x9E3779B97F4A7C15
"""Spreads the seeds of a completion's parts; 2^64 divided by the golden ratio."""
SEEDS: Final = 1 << 63


@attrs.define(eq=False)
class Draft:
    """A completion of several parts. Each continues the tokens of those before under newer weights.

    The keys and values of the earlier tokens are computed again with them, so every token is sampled from one policy
    alone, which `versions` names.

    Attributes:
        request: what was asked for.
        is_over: tells of its tokens whether they end a completion.
        answer: the whole completion, once it is over.

    >>> draft = Draft(Request([5, 6], seed=1), is_over=lambda tokens: len(tokens) == 4)
    >>> draft.take(Answer([7], [-0.5], cut=True), version=3)
    >>> draft.rest().prompt, draft.rest().drawn, draft.answer is None
    ([5, 6, 7], 1, True)
    >>> draft.take(Answer([8], [-0.25]), version=4)
    >>> draft.answer
    Answer(tokens=[7, 8], logps=[-0.5, -0.25], cut=False, versions=[3, 4], seconds=None)
    """

    request: Request
    is_over: Callable[[list[int]], bool]
    answer: Answer | Failure | None = None
    tokens: list[int] = attrs.field(factory=list)
    logps: list[float] = attrs.field(factory=list)
    versions: list[int] = attrs.field(factory=list)

    def rest(self) -> Request:
        """Return the request for the next part; each part has random numbers of its own."""
        drawn = len(self.tokens)
        seed = (self.request.seed + drawn * STRIDE) % SEEDS
        return attrs.evolve(self.request, prompt=[*self.request.prompt, *self.tokens], seed=seed, drawn=drawn)

    def take(self, part: Any, version: int) -> None:
        """Append a part that weights of this version have sampled; one may be cut just after its end."""
        if isinstance(part, Failure):
            self.answer = part
            return
        self.tokens += part.tokens
        self.logps += part.logps
        self.versions += [version] * len(part.tokens)
        if not part.cut or self.is_over(self.tokens):
            seconds = part.seconds if len(part.tokens) == len(self.tokens) else None
            self.answer = Answer(self.tokens, self.logps, versions=self.versions, seconds=seconds)
