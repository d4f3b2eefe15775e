"""The checks of rollout engines catch mistakes: each check fails an engine that is broken in a particular way."""

from __future__ import annotations

import ast
import inspect
import threading
from pathlib import Path
from typing import Any, ClassVar

import attrs
import jax
import numpy as np
import pytest
from flax import nnx

from dovetail.errors import CompletionsFailed, RunError
from dovetail_kit.rollout import EngineCase, Numbers
from dovetail_kit.rollout.case import make_keys
from dovetail_kit.rollout.checks import CHECKS, check_long_prompts_after_a_sync, check_sync
from dovetail_model.layers.mixture import Sparsity
from dovetail_model.model.decoder import Decoder
from dovetail_model.transformer import Transformer
from dovetail_rollout.rollout.vanilla import Vanilla

TINY = Decoder(width=16, layers=2, heads=2, kv_heads=1, ffn=24, init_std=0.4)
BROKEN: dict[str, type[Sound]] = {}


@attrs.frozen
class Sound:
    """An engine that forwards all calls to a correct engine; it takes newer weights before the first token."""

    inner: Any
    weights: Any
    breaks: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        if cls.breaks:
            BROKEN[cls.__name__] = cls

    def generate(self, tokens, mask, keys, sampling, newer=None, **options):
        if newer is not None:
            self.sync(*newer())
        return self.inner.generate(tokens, mask, keys, sampling, **options)

    def sync(self, weights, version):
        self.inner.sync(weights, version)

    def close(self):
        self.inner.close()


class ReportsDoubles(Sound):
    breaks = "check_shapes_and_types"

    def generate(self, *asked):
        drawn = self.inner.generate(*asked)
        return attrs.evolve(drawn, logps=drawn.logps.astype(np.float64))


class ReportsHalf(Sound):
    breaks = "check_reported_logps"

    def generate(self, *asked):
        drawn = self.inner.generate(*asked)
        return attrs.evolve(drawn, logps=drawn.logps / 2)


class ReportsOverTheVocabulary(Sound):
    breaks = "check_reported_logps_of_cuts"

    def generate(self, tokens, mask, keys, sampling):
        return self.inner.generate(tokens, mask, keys, attrs.evolve(sampling, logps="vocabulary"))


class CutsNothing(Sound):
    breaks = "check_cuts_draw_from_the_support"

    def generate(self, tokens, mask, keys, sampling):
        return self.inner.generate(tokens, mask, keys, attrs.evolve(sampling, top_k=None, top_p=None, min_p=None))


class ForgetsWhatTopPHasCut(Sound):
    breaks = "check_the_support_is_kept"

    def generate(self, tokens, mask, keys, sampling, **options):
        drawn = self.inner.generate(tokens, mask, keys, sampling, **options)
        more = self.inner.generate(tokens, mask, keys, attrs.evolve(sampling, top_p=None, min_p=None), **options)
        return attrs.evolve(drawn, support=more.support)


class RecordsChoicesOneTokenLate(Sound):
    breaks = "check_the_choices_are_kept"

    def generate(self, tokens, mask, keys, sampling, **options):
        drawn = self.inner.generate(tokens, mask, keys, sampling, **options)
        return attrs.evolve(drawn, choices=None if drawn.choices is None else np.roll(drawn.choices, 1, axis=1))


class IsNeverGreedy(Sound):
    breaks = "check_greedy_is_the_argmax"

    def generate(self, tokens, mask, keys, sampling):
        return self.inner.generate(tokens, mask, keys, attrs.evolve(sampling, temperature=1.0, top_k=None))


class HasKeysOfItsOwn(Sound):
    breaks = "check_same_keys_same_completions"

    def generate(self, tokens, mask, keys, sampling):
        return self.inner.generate(tokens, mask, make_keys(0, *keys.shape), sampling)


class HasOneKeyForAPrompt(Sound):
    breaks = "check_samples_of_a_prompt_differ"

    def generate(self, tokens, mask, keys, sampling):
        return self.inner.generate(tokens, mask, jax.numpy.repeat(keys[:, :1], keys.shape[1], axis=1), sampling)


class DrawsByPosition(Sound):
    breaks = "check_batch_does_not_matter"

    def generate(self, tokens, mask, keys, sampling):
        return self.inner.generate(tokens, mask, make_keys(0, *keys.shape), sampling)


class DropsTheEos(Sound):
    breaks = "check_eos_is_kept"

    def generate(self, *asked):
        drawn = self.inner.generate(*asked)
        ends = drawn.mask & np.isin(drawn.tokens, Numbers().eos_ids)
        tokens = np.where(ends, Numbers().pad_id, drawn.tokens)
        return attrs.evolve(drawn, tokens=tokens, mask=drawn.mask & ~ends, logps=np.where(ends, 0, drawn.logps))


class NeverSaysThatItCut(Sound):
    breaks = "check_length_limit"

    def generate(self, *asked):
        drawn = self.inner.generate(*asked)
        return attrs.evolve(drawn, finish=np.where(drawn.finish == "length", "eos", drawn.finish))


class NeverStops(Sound):
    breaks = "check_stop_strings"

    def generate(self, tokens, mask, keys, sampling):
        return self.inner.generate(tokens, mask, keys, attrs.evolve(sampling, stop=()))


class KeepsItsWeights(Sound):
    breaks = "check_sync"

    def sync(self, weights, version):
        self.inner.sync(self.weights, version)


class KeepsItsPrefixCache(Sound):
    """Whatever fills a block of 128 tokens is read with the weights that have filled it."""

    breaks = "check_long_prompts_after_a_sync"

    def generate(self, tokens, mask, keys, sampling):
        drawn = self.inner.generate(tokens, mask, keys, sampling)
        if mask.shape[1] < 128:
            return drawn
        self.inner.sync(self.weights, 0)
        return attrs.evolve(self.inner.generate(tokens, mask, keys, sampling), versions=drawn.versions)


class DrawsByThread(Sound):
    breaks = "check_another_thread"

    def generate(self, tokens, mask, keys, sampling):
        other = threading.current_thread() is not threading.main_thread()
        return self.inner.generate(tokens, mask, keys[:, ::-1] if other else keys, sampling)


class CallsOldTokensNew(Sound):
    breaks = "check_in_flight"

    def generate(self, tokens, mask, keys, sampling, newer=None):
        drawn = self.inner.generate(tokens, mask, keys, sampling)
        if newer is not None:
            weights, version = newer()
            self.inner.sync(weights, version)
            drawn = attrs.evolve(drawn, versions=np.full_like(drawn.versions, version))
        return drawn


class LetsOneFailForAll(Sound):
    breaks = "check_failing_prompt"

    def generate(self, *asked):
        drawn = self.inner.generate(*asked)
        if not (drawn.finish == "error").any():
            return drawn
        nothing = np.zeros_like(drawn.mask)
        return attrs.evolve(
            drawn, finish=np.full_like(drawn.finish, "error"), mask=nothing, logps=drawn.logps * nothing
        )


class StaysOpen(Sound):
    breaks = "check_close"

    def close(self):
        """Do nothing, so that it can still be used."""


class GuessesTheSide(Sound):
    breaks = "check_prompts_are_padded_on_the_left"

    def generate(self, tokens, mask, keys, sampling):
        return self.inner.generate(tokens, np.sort(mask, axis=1), keys, sampling)


class RefusesWithoutAReason(Sound):
    breaks = "check_prompts_are_padded_on_the_left"

    def generate(self, *asked):
        raise RunError("no")


@pytest.fixture(scope="module")
def sound():
    """The case of a correct engine that stays open, so that its programs are compiled once.

    Its model has experts, so that there are choices to record.
    """
    numbers: Any = Numbers()
    sparsity = Sparsity(experts=4, chosen=2, ffn=8, normalised=True, layers=(1,))
    spec = attrs.evolve(TINY.spec(numbers.vocab_size), sparsity=sparsity)
    first, second = (Transformer(spec, rngs=nnx.Rngs(seed)) for seed in (0, 1))
    case = EngineCase.of(Vanilla(), first, second, numbers)
    return case, case.sharing(case.open())


@pytest.mark.slow
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_engine_fails_its_check(sound, name):
    case, shared = sound
    engine = BROKEN[name]
    (check,) = (each for each in CHECKS if each.__name__ == engine.breaks)
    whose = case if engine.breaks == "check_close" else shared
    whose = attrs.evolve(whose, claims={**whose.claims, "in_flight": True})
    check(attrs.evolve(whose, open=lambda: Sound(whose.open(), case.weights)))
    with pytest.raises(AssertionError):
        check(attrs.evolve(whose, open=lambda: engine(whose.open(), case.weights)))


def test_every_refusal_says_what_was_seen():
    """Without pytest's rewriting, which leaves out what is installed for editing, a bare assertion says nothing."""
    bare = [
        f"{file.name}:{node.lineno}"
        for file in sorted(Path(inspect.getfile(EngineCase)).parent.glob("*.py"))
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Assert) and node.msg is None
    ]
    assert bare == []


@pytest.mark.slow
def test_a_stale_prefix_cache_is_in_no_short_prompt(sound):
    case, shared = sound
    check_sync(attrs.evolve(shared, open=lambda: KeepsItsPrefixCache(shared.open(), case.weights)))


class HasLittleRoom(Sound):
    """An engine that fails a prompt that is too long for it."""

    def generate(self, tokens, *asked):
        if tokens.shape[1] > 64:
            raise CompletionsFailed("every completion failed: the prompt is too long")
        return self.inner.generate(tokens, *asked)


def test_an_engine_without_room_for_a_long_prompt_is_not_asked_for_more(sound):
    case, shared = sound
    check_long_prompts_after_a_sync(attrs.evolve(shared, open=lambda: HasLittleRoom(shared.open(), case.weights)))


def test_every_check_catches_something():
    assert {check.__name__ for check in CHECKS} == {engine.breaks for engine in BROKEN.values()}
