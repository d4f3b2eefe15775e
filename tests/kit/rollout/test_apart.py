"""The checks of episodes that go on by themselves catch mistakes in `play`, and pass what is right but unusual."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import attrs
import jax
import numpy as np
import pytest
from flax import nnx

from dovetail.errors import CompletionsFailed, RunError
from dovetail_kit.rollout import EngineCase, Numbers, apart
from dovetail_kit.rollout.apart import CHECKS
from dovetail_kit.rollout.case import make_keys
from dovetail_model.model.decoder import Decoder
from dovetail_rollout.rollout.vanilla import Vanilla

TINY = Decoder(width=16, layers=1, heads=2, kv_heads=1, ffn=24, init_std=0.4)
BROKEN: list[type[Apart]] = []


@attrs.define(eq=False, slots=False)
class Apart:
    """A correct engine: each episode has a thread, and the turns that they sample come one after another."""

    inner: Any
    asked: Any = None
    lock: Any = attrs.field(factory=threading.RLock)
    breaks: ClassVar[str] = ""
    threads: ClassVar[int] = 64

    def __init_subclass__(cls) -> None:
        if cls.breaks and cls not in BROKEN:
            BROKEN.append(cls)

    def generate(self, *arguments):
        return self.inner.generate(*arguments)

    def sync(self, weights, version):
        self.inner.sync(weights, version)

    def close(self):
        self.inner.close()

    def turns(self, tokens, mask, keys, sampling, limit, newer=None):
        self.asked = (tokens, mask, keys, sampling, limit, newer)
        return self

    def begin(self):
        """Note what each episode has said."""
        tokens, mask, keys, sampling, _, _ = self.asked
        self.said = [row[kept].tolist() for row, kept in zip(tokens, mask, strict=True) for _ in range(keys.shape[1])]
        self.full = [len(ids) + sampling.max_tokens for ids in self.said]
        return keys.reshape(-1)

    def first(self):
        return self.drawn(range(self.asked[2].size), self.begin())

    def next(self, rows, observed, keys):
        for row, ids in zip(rows, observed, strict=True):
            self.said[row] += ids
        return self.drawn(rows, keys)

    def drawn(self, rows, keys):
        """Sample turns of some episodes: of one, or as many as there are, so that two programs do it."""
        _, _, _, sampling, limit, _ = self.asked
        width, size = max(self.full), 1 if len(rows) == 1 else len(self.said)
        said = [self.said[row] for row in rows]
        padded = np.array([[0] * (width - len(ids)) + ids for ids in said])
        used = np.array([np.arange(width) >= width - len(ids) for ids in said])
        where = np.arange(size) % len(said)
        by_turn = attrs.evolve(sampling, max_tokens=limit)
        with self.lock:
            drawn = self.inner.generate(padded[where], used[where], keys[where][:, None], by_turn)
        drawn = drawn.rows(slice(len(said)))
        for row, ids, kept in zip(rows, drawn.tokens, drawn.mask, strict=True):
            self.said[row] += ids[kept].tolist()[: self.full[row] - len(self.said[row])]
        return drawn

    def play(self, then):
        keys, newer = self.begin(), self.asked[-1]
        with ThreadPoolExecutor(self.threads) as threads:
            going = [threads.submit(self.converse, row, keys[row : row + 1], then) for row in range(len(self.said))]
            while newer is not None and not all(each.done() for each in going):
                if (found := newer()) is not None:
                    with self.lock:
                        self.take(*found)
        if {each.result() for each in going} == {"error"}:
            raise CompletionsFailed("every completion failed")

    def take(self, weights, version):
        self.inner.sync(weights, version)

    def converse(self, row, keys, then):
        """Sample an episode to its end, and return why its last turn ended."""
        while True:
            drawn = self.turn(row, keys)
            found = then(row, drawn)
            if found is None:
                return drawn.finish[0]
            ids, keys = found
            self.said[row] += self.read(row, ids)
            keys = self.key(row, keys)

    def turn(self, row, keys):
        try:
            return self.drawn([row], keys)
        except CompletionsFailed:  # where all of a call fail, there is nothing in it
            return self.failed(row)

    def failed(self, row):
        """Return a turn that failed, made of one that did not."""
        drawn = self.inner.generate(*self.asked[:4]).rows(slice(1))
        nothing = np.zeros_like(drawn.mask)
        return attrs.evolve(drawn, mask=nothing, logps=drawn.logps * nothing, finish=np.array(["error"]))

    def read(self, row, ids):
        return ids

    def key(self, row, keys):
        return keys


class WithFewThreads(Apart):
    """A correct engine, in which not all episodes are under way at a time."""

    threads = 2


class HasOneKeyForAllTurns(Apart):
    breaks = "check_apart_equals_rounds"

    def key(self, row, keys):
        return self.asked[2].reshape(-1)[row : row + 1]


class HasKeysByTheOrderOfTurns(Apart):
    breaks = "check_apart_equals_rounds"

    def key(self, row, keys):
        with self.lock:
            self.count = getattr(self, "count", 0) + 1
            return make_keys(self.count, 1, 1).reshape(-1)


class ForgetsObservations(Apart):
    breaks = "check_apart_equals_rounds"

    def read(self, row, ids):
        return []


class LimitsTurnsByTheEpisode(Apart):
    breaks = "check_apart_equals_rounds"

    def play(self, then):
        self.asked = (*self.asked[:4], self.asked[3].max_tokens, self.asked[5])
        return super().play(then)


class PlaysRounds(Apart):
    breaks = "check_no_episode_waits"

    def play(self, then):
        keys, rows = self.begin(), list(range(len(self.said)))
        while rows:
            following = [(row, then(row, self.turn(row, keys[i : i + 1]))) for i, row in enumerate(rows)]
            following = [(row, found) for row, found in following if found is not None]
            rows = [row for row, _ in following]
            for row, (ids, _) in following:
                self.said[row] += ids
            keys = jax.numpy.concatenate([keys[:0], *(found[1] for _, found in following)])


class TakesItForItsOwn(Apart):
    breaks = "check_what_follows_a_turn_raises"

    def play(self, then):
        try:
            super().play(then)
        except OSError as error:
            raise RunError(f"the server is lost: {error}") from error


class LeavesOutWhatRaises(Apart):
    breaks = "check_what_follows_a_turn_raises"

    def converse(self, row, keys, then):
        try:
            return super().converse(row, keys, then)
        except Exception:
            return "error"


class TellsOfNoFailedTurn(Apart):
    breaks = "check_failing_observation_apart"

    def converse(self, row, keys, then):
        return super().converse(row, keys, lambda row, drawn: None if drawn.finish[0] == "error" else then(row, drawn))


class NeverSaysThatAllFailed(Apart):
    breaks = "check_failing_observation_apart"

    def play(self, then):
        try:
            super().play(then)
        except CompletionsFailed:
            return


class CallsNewTokensOld(Apart):
    breaks = "check_newer_weights_apart"

    def take(self, weights, version):
        self.inner.sync(weights, 0)


@pytest.fixture(scope="module")
def sound():
    """The case of a correct engine that stays open, so that its programs are compiled once."""
    numbers: Any = Numbers()
    first, second = (TINY.make(numbers.vocab_size, rngs=nnx.Rngs(seed)) for seed in (0, 1))
    case = EngineCase.of(Vanilla(), first, second, numbers)
    return attrs.evolve(case.sharing(case.open()), claims={**case.claims, "in_flight": True})


@pytest.mark.slow
@pytest.mark.parametrize("engine", BROKEN, ids=lambda engine: engine.__name__)
def test_a_broken_engine_fails_its_check(sound, engine, monkeypatch):
    monkeypatch.setattr(apart, "PATIENCE", 0.5)
    (check,) = (each for each in CHECKS if each.__name__ == engine.breaks)
    with pytest.raises(AssertionError):
        check(attrs.evolve(sound, open=lambda: engine(sound.open())))


@pytest.mark.slow
@pytest.mark.parametrize("engine", [Apart, WithFewThreads])
def test_a_correct_engine_passes(sound, engine):
    for check in CHECKS:
        check(attrs.evolve(sound, open=lambda: engine(sound.open())))


def test_every_check_catches_something():
    assert {check.__name__ for check in CHECKS} == {engine.breaks for engine in BROKEN}
