"""Episodes of several turns on a host, which may keep the tokens so far in a prefix cache of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import attrs
from jaxtyping import Array, Key

from dovetail.config.settings import Sampling
from dovetail.errors import RunError
from dovetail.protocols import Completions, Weights
from dovetail_rollout.hosted.host import Request
from dovetail_rollout.hosted.seeds import seeds_of

if TYPE_CHECKING:
    from dovetail_rollout.hosted.engine import HostedEngine


@attrs.frozen(kw_only=True)
class HostedTurns:
    """Completions of several turns; see `dovetail.protocols.Turns`.

    A round has a request for each episode that goes on and no other, and asks for no more tokens than fit into its
    episode: a server refuses a request that would be longer than its context.

    Attributes:
        sampling: its limit of tokens is that of a turn.
        said: the ids of each completion so far, with those of its prompt.
        full: the number of ids of each that end it.
        version: of the weights that the episodes have begun with.
        newer: see `HostedEngine.generate`; without it, all turns have the same weights.
    """

    engine: HostedEngine
    keys: Key[Array, "prompt sample"]
    sampling: Sampling
    said: list[list[int]]
    full: list[int]
    version: int
    newer: Callable[[], tuple[Weights, int] | None] | None

    def first(self) -> Completions:
        """Sample the first turns."""
        return self._sampled(range(len(self.said)), self.keys)

    def next(self, rows: Sequence[int], observed: Sequence[Sequence[int]], keys: Key[Array, "seq"]) -> Completions:
        """Sample the next turn of some completions.

        Raises:
            CompletionsFailed: if all of them failed.
            RunError: after `close`, and after a `sync` that `newer` has not asked for.
        """
        if self.newer is None and self.engine.version != self.version:
            raise RunError("the weights of this rollout engine were replaced in the middle of an episode")
        for row, ids in zip(rows, observed, strict=True):
            self.said[row] += ids
        return self._sampled(rows, keys)

    def _sampled(self, rows: Sequence[int], keys: Any) -> Completions:
        seeds = seeds_of(keys).ravel().tolist()
        rooms = [min(self.sampling.max_tokens, self.full[row] - len(self.said[row])) for row in rows]
        requests = [
            Request(list(self.said[row]), seed, limit=room) for row, seed, room in zip(rows, seeds, rooms, strict=True)
        ]
        drawn = self.engine.complete(requests, self.sampling, self.newer)
        for row, ids, kept in zip(rows, drawn.tokens, drawn.mask, strict=True):
            self.said[row] += ids[kept].tolist()
        return drawn
