"""The checks of rollout engines over several turns; each takes an `EngineCase`, as in `checks`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import attrs
import numpy as np

from dovetail.config.settings import Sampling
from dovetail.errors import RunError
from dovetail.host.episodes import Rounds, Tape, Then
from dovetail.protocols import Continuing, Weights
from dovetail_kit.rollout.case import PROMPTS, SAMPLES, EngineCase, make_keys
from dovetail_kit.rollout.expected import expected_logps

TURNS: Final = 5
TURN_TOKENS: Final = 4
RANDOM: Final = Sampling(temperature=0.8, max_tokens=48)


@attrs.frozen
class _Again:
    """An engine without its method `turns`: every turn processes the episode so far again."""

    engine: Any

    def generate(self, *arguments: Any, **options: Any) -> Any:
        return self.engine.generate(*arguments, **options)


def observations(case: EngineCase, unknown: Sequence[int] = ()) -> Then:
    """Return an agent whose observations have 0 to 5 tokens; a row ends after 2 to 5 turns, half of them after 5.

    The rows `unknown` observe an id outside the vocabulary.
    """
    special = {case.tokenizer.pad_id, *case.tokenizer.eos_ids}
    ids = [token for token in range(case.tokenizer.vocab_size) if token not in special]
    done = np.zeros(PROMPTS * SAMPLES, int)

    def then(rows: list[int], turns: list[list[int]], finish: list[str]) -> list[list[int] | None]:
        done[rows] += 1
        return [observed(row) for row in rows]

    def observed(row: int) -> list[int] | None:
        if done[row] >= max(2, TURNS - row % 6):
            return None
        if row in unknown:
            return [case.tokenizer.vocab_size + 1000]
        rng = np.random.default_rng([row, int(done[row])])
        return rng.choice(ids, int(rng.integers(0, 6))).tolist()

    return then


def _only(row: int, then: Then) -> Then:
    """Return an agent that ends all episodes but one after their first turns."""

    def only(rows: list[int], turns: list[list[int]], finish: list[str]) -> list[list[int] | None]:
        answers = then(rows, turns, finish)
        return [answer if index == row else None for index, answer in zip(rows, answers, strict=True)]

    return only


def play(
    case: EngineCase,
    engine: Any,
    sampling: Sampling = RANDOM,
    then: Then | None = None,
    options: Mapping[str, Any] = MappingProxyType({}),
) -> tuple[Tape, np.ndarray]:
    """Play episodes after the prompts of a case, as a step does."""
    rounds = Rounds(engine=engine, pad_id=case.tokenizer.pad_id, max_turn_tokens=TURN_TOKENS, options=options)
    return rounds(*case.prompts(), make_keys(), sampling, then or observations(case))


def furthest(case: EngineCase, tape: Tape, weights: Weights, sampling: Sampling = RANDOM) -> float:
    """Return how far, at most, reported log-probabilities are from those of the model, which reads episodes at once."""
    drawn = tape.completions(np.zeros(len(tape.tokens), bool))
    logits = case.logits(attrs.evolve(drawn, mask=drawn.mask | drawn.observed), weights)
    gaps = np.where(drawn.mask, drawn.logps - expected_logps(logits, drawn.tokens, sampling), 0.0)
    return float(np.abs(gaps).max())


def check_logps_of_episodes(case: EngineCase) -> None:
    """Over five turns with observations, reported log-probabilities are those of the model on the whole episode.

    After a sync they are those of the new weights. The usual causes: an observation is not in the cache, or at another
    position, or the cache of a prefix outlives the weights.
    """
    engine = case.open()
    for version, weights in enumerate((case.weights, case.other)):
        engine.sync(weights, version)
        tape, _ = play(case, engine)
        assert tape.turns.max() == TURNS - 1, f"no episode has {TURNS} turns"
        versions = set(tape.versions[tape.mask].tolist())
        assert versions == {version}, f"tokens are said to be of the versions {versions}, not of {version} alone"
        far = furthest(case, tape, weights)
        assert far <= case.tolerance, f"log-probabilities of version {version} are {far:.2g} away, {TURNS} turns"


def check_turns_equal_rounds(case: EngineCase) -> None:
    """Episodes that `turns` continues equal those that `generate` begins again each turn (`batch_invariant`).

    The usual causes: keys of an earlier turn, rows numbered anew in each round, stop strings of the first turn only, or
    tokens behind a stop string that stay in the cache.
    """
    engine = case.open()
    if not (_continues(case, engine) and case.claims.get("batch_invariant")):
        return
    tape, _ = play(case, engine)
    said = _most_frequent(case, tape)
    for sampling in (attrs.evolve(RANDOM, stop=(said,)), attrs.evolve(RANDOM, top_k=4, max_tokens=11)):
        options = {"keep_support": True} if sampling.top_k and case.claims.get("keeps_support") else {}
        here, here_full = play(case, engine, sampling, options=options)
        there, there_full = play(case, _Again(engine), sampling, options=options)
        for name in ("tokens", "mask", "observed", "turns", "finish", "versions", "support"):
            np.testing.assert_array_equal(getattr(here, name), getattr(there, name), err_msg=f"{name}, {sampling}")
        np.testing.assert_array_equal(here_full, there_full, err_msg=f"episodes without room, {sampling}")
        np.testing.assert_allclose(here.logps, there.logps, atol=case.tolerance, err_msg=f"logps, {sampling}")


def check_turns_keep_their_weights(case: EngineCase) -> None:
    """An episode that `turns` has begun is refused after a sync, because its cache is that of other weights.

    A completion whose turns are from different weights has log-probabilities of neither.
    """
    engine = case.open()
    if not _continues(case, engine):
        return
    observe = observations(case)

    def then(*ended: Any) -> list[list[int] | None]:
        engine.sync(case.other, version=3)
        return observe(*ended)

    try:
        play(case, engine, then=then)
    except RunError:
        return
    raise AssertionError("an episode continues with weights other than those it began with")


def check_failing_observation(case: EngineCase) -> None:
    """An observation that cannot be read, here an id outside the vocabulary, ends its episode and harms no other.

    A single faulty tool would otherwise end a run that has cost days.
    """
    engine, row = case.open(), 9
    whole, _ = play(case, engine)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tape, _ = play(case, engine, then=observations(case, [row]))
        last, _ = play(case, engine, then=_only(row, observations(case, [row])))
    rows = np.arange(len(tape.tokens))
    np.testing.assert_array_equal(last.finish == "error", rows == row, err_msg="if it is the last that goes on")
    np.testing.assert_array_equal(tape.finish == "error", rows == row, err_msg="episodes that failed")
    if case.claims.get("batch_invariant"):
        np.testing.assert_array_equal(tape.tokens[rows != row], whole.tokens[rows != row], err_msg="the others' tokens")


def _most_frequent(case: EngineCase, tape: Tape) -> str:
    """Return the text that the policy samples most often after its first turn, an EOS and empty texts left out."""
    later = tape.tokens[tape.mask & (tape.turns > 0)]
    often = np.bincount(later[~np.isin(later, case.tokenizer.eos_ids)]).argsort()[::-1]
    return next(text for token in often if (text := case.tokenizer.decode([int(token)])))


def _continues(case: EngineCase, engine: Any) -> bool:
    """Tell whether an engine continues these episodes itself."""
    if not isinstance(engine, Continuing):
        return False
    return engine.turns(*case.prompts(), make_keys(), RANDOM, TURN_TOKENS) is not None


CHECKS: Final[Sequence[Callable[[EngineCase], None]]] = tuple(
    value for name, value in sorted(globals().items()) if name.startswith("check_")
)
"""All checks of this module."""
