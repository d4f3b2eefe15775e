"""The checks of engines over several turns catch mistakes in `turns`, and pass what is right but unusual."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import attrs
import numpy as np
import pytest
from flax import nnx

from dovetail_kit.rollout import EngineCase, Numbers
from dovetail_kit.rollout.case import make_keys
from dovetail_kit.rollout.episodes import CHECKS
from dovetail_model.model.decoder import Decoder
from dovetail_rollout.rollout.vanilla import Vanilla

TINY = Decoder(width=16, layers=1, heads=2, kv_heads=1, ffn=24, init_std=0.4)
BROKEN: list[type[Sound]] = []


@attrs.frozen
class Sound:
    """A correct engine, which changes nothing in what it asks another one."""

    inner: Any
    breaks: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        if cls.breaks:
            BROKEN.append(cls)

    def generate(self, *arguments, **options):
        return self.inner.generate(*arguments, **options)

    def turns(self, *arguments, **options):
        return SoundTurns(self.inner.turns(*arguments, **options), self)

    def asked(self, rows: Sequence[int], observed: Any, keys: Any) -> tuple[Any, Any, Any]:
        """Return what `next` is asked with."""
        return rows, observed, keys

    def drawn(self, completions):
        """Return what `next` returns."""
        return completions

    def sync(self, weights, version):
        self.inner.sync(weights, version)

    def close(self):
        self.inner.close()


@attrs.frozen
class SoundTurns:
    turns: Any
    engine: Any

    def first(self):
        return self.turns.first()

    def next(self, rows, observed, keys):
        return self.engine.drawn(self.turns.next(*self.engine.asked(rows, observed, keys)))


class ForgetsObservations(Sound):
    breaks = "check_logps_of_episodes"

    def asked(self, rows, observed, keys):
        return rows, [() for _ in observed], keys


class ReadsObservationsTwice(Sound):
    breaks = "check_logps_of_episodes"

    def asked(self, rows, observed, keys):
        return rows, [[*ids, *ids] if len(ids) < 2 else ids for ids in observed], keys


class ReadsWhatAnotherObserved(Sound):
    breaks = "check_logps_of_episodes"

    def asked(self, rows, observed, keys):
        return rows, [*observed[1:], observed[0]], keys


class ReportsHalfInLaterTurns(Sound):
    breaks = "check_logps_of_episodes"

    def drawn(self, completions):
        return attrs.evolve(completions, logps=completions.logps / 2)


class HasOneKeyForATurn(Sound):
    breaks = "check_turns_equal_rounds"

    def asked(self, rows, observed, keys):
        return rows, observed, make_keys(0, 1, len(rows)).reshape(-1)


class ForgetsTheStopStrings(Sound):
    breaks = "check_turns_equal_rounds"

    def turns(self, tokens, mask, keys, sampling, limit, **options):
        return super().turns(tokens, mask, keys, attrs.evolve(sampling, stop=()), limit, **options)


class LimitsTurnsByTheEpisode(Sound):
    breaks = "check_turns_equal_rounds"

    def turns(self, tokens, mask, keys, sampling, limit, **options):
        return super().turns(tokens, mask, keys, sampling, sampling.max_tokens, **options)


class SaysThatEveryTurnEnded(Sound):
    breaks = "check_turns_equal_rounds"

    def drawn(self, completions):
        return attrs.evolve(completions, finish=np.where(completions.mask.any(axis=1), "eos", completions.finish))


class ChangesWeightsInAnEpisode(Sound):
    breaks = "check_turns_keep_their_weights"

    def turns(self, *arguments, **options):
        return BeginsAgain(self.inner, *arguments)


class LetsOneFailForAll(Sound):
    breaks = "check_failing_observation"

    def drawn(self, completions):
        if not (completions.finish == "error").any():
            return completions
        nothing = np.zeros_like(completions.mask)
        finish = np.full_like(completions.finish, "error")
        return attrs.evolve(completions, finish=finish, mask=nothing, logps=completions.logps * nothing)


class ReadsAnUnknownIdAsAnother(Sound):
    breaks = "check_failing_observation"

    def asked(self, rows, observed, keys):
        return rows, [[token % Numbers().vocab_size for token in ids] for ids in observed], keys


class BeginsAgain:
    """Turns without a cache, which do not notice that the weights have changed."""

    def __init__(self, engine, tokens, mask, keys, sampling, limit):
        self.engine, self.keys = engine, keys
        self.sampling, self.limit = sampling, limit
        self.said = [row[kept].tolist() for row, kept in zip(tokens, mask, strict=True) for _ in range(keys.shape[1])]
        self.left = sampling.max_tokens + np.array([len(ids) for ids in self.said])

    def first(self):
        return self.draw(range(len(self.said)), self.keys.reshape(-1))

    def next(self, rows, observed, keys):
        for row, ids in zip(rows, observed, strict=True):
            self.said[row] += ids
        return self.draw(rows, keys)

    def draw(self, rows, keys):
        width = max(self.left)
        padded = [[0] * (width - len(self.said[row])) + self.said[row] for row in rows]
        used = [np.arange(width) >= width - len(self.said[row]) for row in rows]
        by_turn = attrs.evolve(self.sampling, max_tokens=self.limit)
        drawn = self.engine.generate(np.array(padded), np.array(used), keys[:, None], by_turn)
        for row, ids, kept in zip(rows, drawn.tokens, drawn.mask, strict=True):
            self.said[row] += ids[kept].tolist()
        return drawn


@attrs.frozen
class NeverContinues(Sound):
    """A correct engine that has the method and always says that it has no room."""

    def turns(self, *arguments, **options):
        return None


@attrs.frozen
class WithoutTheMethod:
    """A correct engine whose turns are calls of `generate`."""

    inner: Any

    def generate(self, *arguments, **options):
        return self.inner.generate(*arguments, **options)

    def sync(self, weights, version):
        self.inner.sync(weights, version)

    def close(self):
        self.inner.close()


@pytest.fixture(scope="module")
def sound():
    """The case of a correct engine that stays open, so that its programs are compiled once."""
    numbers: Any = Numbers()
    first, second = (TINY.make(numbers.vocab_size, rngs=nnx.Rngs(seed)) for seed in (0, 1))
    case = EngineCase.of(Vanilla(), first, second, numbers)
    return case.sharing(case.open())


@pytest.mark.slow
@pytest.mark.parametrize("engine", BROKEN, ids=lambda engine: engine.__name__)
def test_a_broken_engine_fails_its_check(sound, engine):
    (check,) = (each for each in CHECKS if each.__name__ == engine.breaks)
    with pytest.raises(AssertionError):
        check(attrs.evolve(sound, open=lambda: engine(sound.open())))


@pytest.mark.slow
@pytest.mark.parametrize("engine", [Sound, NeverContinues, WithoutTheMethod])
def test_a_correct_engine_passes(sound, engine):
    for check in CHECKS:
        check(attrs.evolve(sound, open=lambda: engine(sound.open())))


def test_every_check_catches_something():
    assert {check.__name__ for check in CHECKS} == {engine.breaks for engine in BROKEN}
