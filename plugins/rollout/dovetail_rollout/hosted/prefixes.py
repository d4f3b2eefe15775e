"""What the replicas of a fleet have computed of prompts, and keep in a prefix cache."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import attrs


@attrs.define(eq=False)
class Prefixes:
    """The prompts of a batch's requests, and which replica has computed how much of them.

    A replica needs only the rest of a request that begins as an earlier one did: another sample of a prompt, or the
    next turn of an episode. What it has dropped since then is not known here, so that this is an estimate.

    Attributes:
        prompts: tokens of the prompt of each request, by its position in the batch.
        groups: which requests begin with the same prompt, by position.
        kept: by replica, the tokens that it has computed of each group's prompt and of each episode.

    >>> prefixes = Prefixes([90, 90], groups=["a prompt", "a prompt"])
    >>> prefixes.sent(0, replica=3)
    >>> prefixes.of(1, replica=3), prefixes.of(1, replica=4)
    (90, 0)
    >>> prefixes.answered(1, replica=3, tokens=20)
    >>> prefixes.go_on(1, prompt=150)
    >>> prefixes.of(1, replica=3), prefixes.of(0, replica=3)
    (110, 90)
    """

    prompts: list[int]
    groups: Sequence[Hashable]
    kept: dict[int, dict[Hashable, int]] = attrs.field(factory=dict)
    shared: list[int] = attrs.field(default=attrs.Factory(lambda self: list(self.prompts), takes_self=True), init=False)
    """Tokens of the prompt with which each episode has begun, and others of its group too."""

    def of(self, ordinal: int, replica: int) -> int:
        """Return how many tokens of a request a replica need not compute again."""
        kept = self.kept.get(replica, {})
        return max(kept.get(("group", self.groups[ordinal]), 0), kept.get(("episode", ordinal), 0))

    def sent(self, ordinal: int, replica: int) -> None:
        """Take note that a replica gets a request, which begins with the prompt of its group."""
        self.kept.setdefault(replica, {})["group", self.groups[ordinal]] = self.shared[ordinal]

    def answered(self, ordinal: int, replica: int, tokens: int) -> None:
        """Take note of an answer of so many tokens."""
        self.kept.setdefault(replica, {})["episode", ordinal] = self.prompts[ordinal] + tokens

    def go_on(self, ordinal: int, prompt: int) -> None:
        """Take note that an episode goes on with a longer prompt."""
        self.prompts[ordinal] = prompt

    def lose(self, replica: int) -> None:
        """Forget a replica, which begins again with nothing."""
        self.kept.pop(replica, None)
