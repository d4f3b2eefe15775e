"""The rollout protocol over a host that reads weights from a folder."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import attrs
import jax
import numpy as np
from jaxtyping import Array, Bool, Int, Key

from dovetail.config.settings import Sampling
from dovetail.errors import CompletionsFailed, ConfigError, RunError
from dovetail.protocols import Completions, Weights
from dovetail_rollout.checks import check_prompts, prompt_positions
from dovetail_rollout.decoding.stops import first_stop
from dovetail_rollout.hosted.calls import Form, Place
from dovetail_rollout.hosted.draft import Draft
from dovetail_rollout.hosted.handover import Handover
from dovetail_rollout.hosted.host import (
    Answer,
    Conversing,
    Ends,
    Failure,
    Host,
    HostLost,
    Interrupt,
    Request,
    least_pace,
)
from dovetail_rollout.hosted.restarts import Restarts
from dovetail_rollout.hosted.seeds import seeds_of
from dovetail_rollout.hosted.turns import FreeTurns, HostedTurns

T = TypeVar("T")
SHOWN_FAILURES: Final = 3


@attrs.define(kw_only=True, eq=False)
class HostedEngine:
    """An open engine whose model is served by `host`; see `dovetail.protocols.RolloutEngine`.

    Prompts and completions travel as ids, and stop strings are searched here with the policy's own tokenizer, so the
    host needs none. The seed of each completion is made from its key.

    Attributes:
        name: the component's name, for messages.
        host: serves `folder`, which has the weights of `version`.
        handover: writes the weights at each sync.
        restarts: how often a lost host may be restarted.
        vocabulary_logps: whether the host reports log-probabilities over the whole vocabulary if asked to.
        compiles: whether the host compiles calls of each size, so that rounds of episodes are padded to few sizes.
    """

    name: str
    host: Host
    handover: Handover
    folder: Path
    vocab_size: int
    eos_ids: tuple[int, ...]
    pad_id: int
    decode: Callable[[Sequence[int]], str] = attrs.field(repr=False)
    restarts: Restarts
    vocabulary_logps: bool = False
    compiles: bool = False
    version: int = 0
    closed: bool = False
    pace: float | None = None
    """The least seconds per token of a completion of the last call: of one that waited in no queue."""

    def generate(
        self,
        prompt_tokens: Int[np.ndarray, "prompt position"],
        prompt_mask: Bool[np.ndarray, "prompt position"],
        keys: Key[Array, "prompt sample"],
        sampling: Sampling,
        newer: Callable[[], tuple[Weights, int] | None] | None = None,
    ) -> Completions:
        """Sample one completion for each key; with `newer`, under newer weights as soon as there are some.

        Raises:
            ConfigError: for shapes that do not match, prompts padded on the right, or log-probabilities that the host
                does not report.
            CompletionsFailed: if every completion failed.
            RunError: after `close`, or if the host is lost for good.
        """
        prompts, seeds = _prompts(prompt_tokens, prompt_mask, keys), seeds_of(keys)
        words = np.asarray(jax.random.key_data(keys))
        longest = max(map(len, prompts), default=0)
        batch = Form(keys.shape[0], keys.shape[1], prompt_positions(longest, prompt_mask.shape[1]))
        requests = [
            Request(prompts[p], int(seeds[p, s]), tuple(words[p, s].tolist()), place=Place(p, s, batch))
            for p, s in np.ndindex(*keys.shape)
        ]
        return self.complete(requests, sampling, newer)

    def turns(
        self,
        prompt_tokens: Int[np.ndarray, "prompt position"],
        prompt_mask: Bool[np.ndarray, "prompt position"],
        keys: Key[Array, "prompt sample"],
        sampling: Sampling,
        max_turn_tokens: int,
        newer: Callable[[], tuple[Weights, int] | None] | None = None,
    ) -> HostedTurns | None:
        """Return completions of several turns; None if the host compiles calls of each size.

        Raises:
            ConfigError: as for `generate`.
        """
        if self.compiles:
            return None
        said = [list(ids) for ids in _prompts(prompt_tokens, prompt_mask, keys) for _ in range(keys.shape[1])]
        turns = FreeTurns if isinstance(self.host, Conversing) else HostedTurns
        return turns(
            engine=self,
            keys=keys,
            sampling=attrs.evolve(sampling, max_tokens=min(max_turn_tokens, sampling.max_tokens)),
            said=said,
            full=[len(ids) + sampling.max_tokens for ids in said],
            version=self.version,
            newer=newer,
        )

    def complete(
        self,
        requests: Sequence[Request],
        sampling: Sampling,
        newer: Callable[[], tuple[Weights, int] | None] | None = None,
    ) -> Completions:
        """Sample a completion for each request; raises as `generate`."""
        ends, version = self.ends(sampling), self.version
        unfit = [self.unfit(request) for request in requests]
        asked = [request for request, failure in zip(requests, unfit, strict=True) if failure is None]
        answers = iter(self._drawn(asked, sampling, ends, newer) if asked else [])
        drawn = [failure or next(answers) for failure in unfit]
        self.report(drawn)
        self.pace = least_pace(drawn)
        return self.completions(drawn, sampling, ends, version)

    def ends(self, sampling: Sampling) -> Ends:
        """Return what ends a completion.

        Raises:
            ConfigError: if the host does not report the log-probabilities that are asked for.
            RunError: after `close`.
        """
        self._check_open()
        if not self.vocabulary_logps:
            _check_reported(self.name, sampling)
        return Ends(eos_ids=self.eos_ids, stopped=stopped(sampling.stop, self.decode) if sampling.stop else None)

    def unfit(self, request: Request) -> Failure | None:
        """Return the failure of a request that the host is not to see; some end with such a prompt."""
        prompt = request.prompt
        if prompt and min(prompt) >= 0 and max(prompt) < self.vocab_size:
            return None
        return Failure(f"a prompt is empty, or has ids outside the vocabulary of {self.vocab_size:,}")

    def _drawn(
        self,
        requests: Sequence[Request],
        sampling: Sampling,
        ends: Ends,
        newer: Callable[[], tuple[Weights, int] | None] | None,
    ) -> Sequence[Answer | Failure]:
        """Have the host complete the requests; those that newer weights break off go on under these."""
        if newer is None:
            return self.with_restarts(lambda: self.host.complete(requests, sampling, ends))
        mosts = [request.most(sampling.max_tokens) for request in requests]
        drafts = [
            Draft(request, partial(ends.are_met, most=most)) for request, most in zip(requests, mosts, strict=True)
        ]
        while left := [draft for draft in drafts if draft.answer is None]:
            interrupt = Interrupt(newer)
            until = attrs.evolve(ends, interrupt=interrupt)
            rests = [draft.rest() for draft in left]
            parts = self.with_restarts(lambda r=rests, u=until: self.host.complete(r, sampling, u))
            for draft, part in zip(left, parts, strict=True):
                draft.take(part, self.version)
            if interrupt.found is not None:
                self.sync(*interrupt.found)
        return [draft.answer for draft in drafts if draft.answer is not None]

    def completions(
        self, drawn: Sequence[Answer | Failure], sampling: Sampling, ends: Ends, version: int
    ) -> Completions:
        """Put answers into arrays, cut at a stop string, and say how each one ended."""
        shape = (len(drawn), sampling.max_tokens)
        tokens, lengths = np.full(shape, self.pad_id, np.int32), np.zeros(len(drawn), np.int32)
        logps, finish = np.zeros(shape, np.float32), np.full(len(drawn), "length", "<U6")
        versions = np.full(shape, version, np.int32)
        for row, answer in enumerate(drawn):
            if isinstance(answer, Failure):
                finish[row] = "error"
                continue
            end = ends.stopped(answer.tokens) if ends.stopped else None
            length = lengths[row] = len(answer.tokens) if end is None else end
            self._check(answer.tokens[:length], sampling.max_tokens)
            tokens[row, :length], logps[row, :length] = answer.tokens[:length], answer.logps[:length]
            if answer.versions:
                versions[row, :length] = answer.versions[:length]
                versions[row, length:] = answer.versions[length - 1]
            if end is not None:
                finish[row] = "stop"
            elif answer.tokens[-1] in self.eos_ids:
                finish[row] = "eos"
        return Completions(
            tokens=tokens,
            mask=np.arange(sampling.max_tokens) < lengths[:, None],
            logps=logps,
            finish=finish,
            versions=versions,
        )

    def timings(self) -> dict[str, float]:
        """Return the seconds per token of a completion that waits for no other, if the host looks at a clock."""
        return {} if self.pace is None else {"seconds_per_token": self.pace}

    def _check(self, tokens: Sequence[int], most: int) -> None:
        """Refuse a completion that this model cannot have written, or not as asked."""
        if len(tokens) > most:
            raise RunError(f"rollout engine '{self.name}' returned {len(tokens)} tokens, {most} were asked for")
        wrong = [token for token in tokens if not 0 <= token < self.vocab_size]
        if wrong:
            raise RunError(
                f"rollout engine '{self.name}' returned the token {wrong[0]}, and the vocabulary has"
                f" {self.vocab_size:,}: it serves another model"
            )

    def report(self, drawn: Sequence[Answer | Failure]) -> None:
        """Warn of completions that failed.

        Raises:
            CompletionsFailed: if all of them did.
        """
        failed = {row: answer.reason for row, answer in enumerate(drawn) if isinstance(answer, Failure)}
        reasons = "; ".join(sorted(set(failed.values()))[:SHOWN_FAILURES])
        if len(failed) == len(drawn):
            raise CompletionsFailed(f"every completion failed: {reasons}")
        if failed:
            warnings.warn(
                f"completions {list(failed)} failed and are left out: {reasons}", RuntimeWarning, stacklevel=5
            )

    def sync(self, weights: Weights, version: int) -> None:
        """Use these weights from now on.

        Raises:
            RunError: after `close`, if they cannot be written, or the host is lost for good.
        """
        self._check_open()
        folder = self.handover.write(weights, version)
        self.folder, self.version = folder, version
        self.with_restarts(lambda: self.host.load(folder))
        self.handover.keep(folder, *self.host.reading)

    def close(self) -> None:
        """End the host; a second call does nothing."""
        self.closed = True
        self.host.stop()
        self.handover.close()

    def with_restarts(self, use: Callable[[], T]) -> T:
        """Use the host; if it is lost, restart it with the newest weights and try again.

        Raises:
            RunError: if it is lost more often than it may be restarted.
        """
        while True:
            try:
                return use()
            except HostLost as lost:
                self.host.stop()
                if not self.restarts.take():
                    raise RunError(f"rollout engine '{self.name}' is lost: {lost}") from lost
                warnings.warn(f"rollout engine '{self.name}' is restarted: {lost}", RuntimeWarning, stacklevel=4)
            self.host.start(self.folder)

    def _check_open(self) -> None:
        if self.closed:
            raise RunError(f"this rollout engine, '{self.name}', is closed; open another one")


def _prompts(
    tokens: Int[np.ndarray, "prompt position"],
    mask: Bool[np.ndarray, "prompt position"],
    keys: Key[Array, "prompt sample"],
) -> list[list[int]]:
    """Return the ids of prompts without their padding."""
    check_prompts(tokens, mask, keys)
    return [row[kept].tolist() for row, kept in zip(np.asarray(tokens), np.asarray(mask, bool), strict=True)]


def stopped(strings: tuple[str, ...], decode: Callable[[Sequence[int]], str]) -> Callable[..., int | None]:
    """Return a function that gives the number of tokens at which a text first contains one of `strings`, or None.

    Its second argument, if there is one, is how many tokens are known to contain none.

    >>> stopped(("b",), lambda tokens: "".join(map(chr, tokens)))([97, 98, 99])
    2
    """

    def first(tokens: Sequence[int], seen: int = 0) -> int | None:
        return first_stop(tokens, strings, decode, seen)

    return first


def _check_reported(name: str, sampling: Sampling) -> None:
    """Refuse to report over the vocabulary if the host reports over the support and the two differ."""
    no_cut = {"top_k": (None,), "top_p": (None, 1.0), "min_p": (None, 0.0)}
    cuts = [name for name, none in no_cut.items() if getattr(sampling, name) not in none]
    if sampling.logps == "vocabulary" and cuts and sampling.temperature:
        raise ConfigError(
            f"sampling.logps = 'vocabulary' with sampling.{cuts[0]}: rollout engine '{name}' reports log-probabilities"
            " over the support only; use 'support', remove the cut, or use the engine 'vanilla'"
        )
