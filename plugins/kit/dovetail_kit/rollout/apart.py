"""The checks of rollout engines whose episodes go on by themselves (`Turns.play`); each takes an `EngineCase`."""

from __future__ import annotations

import itertools
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import attrs
import numpy as np

from dovetail.config.settings import Sampling
from dovetail.errors import CompletionsFailed, RunError
from dovetail.host.episodes import Alone, Rounds, Tape
from dovetail.protocols import Continuing
from dovetail_kit.rollout.case import PROMPTS, SAMPLES, EngineCase, make_keys
from dovetail_kit.rollout.episodes import RANDOM, TURN_TOKENS, observations
from dovetail_kit.rollout.expected import assert_of_their_versions

ROWS: Final = PROMPTS * SAMPLES
PATIENCE: Final = 60.0
"""Seconds within which all episodes but one are over, if they do not wait for that one."""
NEIGHBOUR: Final = 0.2
"""Seconds for which the tools of an episode wait for its neighbour to be faster; then they answer all the same."""


def play_apart(
    case: EngineCase,
    engine: Any,
    alone: Alone,
    sampling: Sampling = RANDOM,
    options: Mapping[str, Any] = MappingProxyType({}),
) -> tuple[Tape, np.ndarray]:
    """Play episodes after the prompts of a case as a step does whose agent loop answers single turns."""
    rounds = Rounds(engine=engine, pad_id=case.tokenizer.pad_id, max_turn_tokens=TURN_TOKENS, options=options)
    return rounds(*case.prompts(), make_keys(), sampling, _in_rounds(alone), alone)


def _in_rounds(alone: Alone) -> Callable[..., list[list[int] | None]]:
    return lambda rows, turns, finish: [alone(*each) for each in zip(rows, turns, finish, strict=True)]


def _plays(case: EngineCase, engine: Any) -> bool:
    """Tell whether the episodes of an engine go on by themselves."""
    if not isinstance(engine, Continuing):
        return False
    turns = engine.turns(*case.prompts(), make_keys(), RANDOM, TURN_TOKENS)
    return getattr(turns, "play", None) is not None


def _observing(case: EngineCase, unknown: Sequence[int] = ()) -> Alone:
    """Return an agent that answers single turns as that of rounds does; those rows observe an id that is not there."""
    then = observations(case, unknown)
    return lambda row, turn, finish: then([row], [turn], [finish])[0]


def _late_where_even(alone: Alone) -> Alone:
    """Return an agent whose even rows are first answered after the odd rows next to them."""
    answered = [threading.Event() for _ in range(ROWS)]

    def late(row: int, turn: list[int], finish: str) -> list[int] | None:
        if row % 2 == 0 and not answered[row].is_set():
            answered[row + 1].wait(NEIGHBOUR)
        answered[row].set()
        return alone(row, turn, finish)

    return late


def check_apart_equals_rounds(case: EngineCase) -> None:
    """Episodes that go on by themselves (`play`) equal those of rounds, whichever is ahead (`batch_invariant`).

    The usual causes: the key of the first turn in all of them, a key by the order in which turns are asked for,
    something that episodes share, or the limits and stop strings of `generate`.
    """
    engine = case.open()
    if not (_plays(case, engine) and case.claims.get("batch_invariant")):
        return
    for sampling in (RANDOM, attrs.evolve(RANDOM, top_k=4, max_tokens=11)):
        here, here_full = play_apart(case, engine, _late_where_even(_observing(case)), sampling)
        rounds = Rounds(engine=engine, pad_id=case.tokenizer.pad_id, max_turn_tokens=TURN_TOKENS)
        there, there_full = rounds(*case.prompts(), make_keys(), sampling, observations(case))
        for row in range(ROWS):
            assert (seen := _said(here, row)) == (meant := _said(there, row)), _difference(row, seen, meant)
        np.testing.assert_array_equal(here.versions, there.versions, err_msg=f"versions, {sampling}")
        np.testing.assert_array_equal(here_full, there_full, err_msg=f"episodes without room, {sampling}")
        np.testing.assert_allclose(here.logps, there.logps, atol=case.tolerance, err_msg=f"logps, {sampling}")


def _said(tape: Tape, row: int) -> list[str]:
    """Return what an episode says in each turn and reads after it; at the end, why it is over."""
    turns = [tape.turns[row] == turn for turn in range(int(tape.turns[row].max()) + 1)]
    said = [[tape.tokens[row, turn & kept[row]].tolist() for kept in (tape.mask, tape.observed)] for turn in turns]
    return [*(f"turn {turn}: {ours}, then {read}" for turn, (ours, read) in enumerate(said)), str(tape.finish[row])]


def _difference(row: int, seen: Sequence[str], meant: Sequence[str]) -> str:
    ours, theirs = next(pair for pair in itertools.zip_longest(seen, meant, fillvalue="over") if pair[0] != pair[1])
    return f"episode {row} is different by itself, with ({ours}), and in rounds, with ({theirs})"


def check_no_episode_waits(case: EngineCase) -> None:
    """While the tools of one episode are at work, all others that go on by themselves (`play`) come to their ends.

    An engine that answers one turn after another, or asks for a round at a time, makes every episode wait for the
    slowest tool, which is what `play` is there to avoid.
    """
    engine = case.open()
    if not _plays(case, engine):
        return
    over, answered, lock, waited = threading.Event(), Counter[int](), threading.Lock(), list[int]()
    special = {case.tokenizer.pad_id, *case.tokenizer.eos_ids}
    some = next(token for token in range(case.tokenizer.vocab_size) if token not in special)

    def alone(row: int, turn: list[int], finish: str) -> list[int] | None:
        if row == 0 and not over.wait(PATIENCE):
            waited.append(ROWS - 1 - sum(answered[other] == 2 for other in range(1, ROWS)))
            over.set()
        with lock:
            answered[row] += 1
            if all(answered[other] == 2 for other in range(1, ROWS)):
                over.set()
        return None if answered[row] == 2 else [some]

    play_apart(case, engine, alone)
    assert not waited, (
        f"while the tools of episode 0 are at work, {waited[0]} of {ROWS - 1} other episodes do not go on"
    )


def check_what_follows_a_turn_raises(case: EngineCase) -> None:
    """What is raised where a turn is answered comes out of `play` as it is, and other calls of the engine still work.

    It is no error of the engine: taken for one, a tool's bug restarts a server, or leaves out an episode unseen.
    """
    engine = case.open()
    if not _plays(case, engine):
        return
    for error in (RunError("the disk is full"), OSError("no such file"), ZeroDivisionError("a bug")):

        def alone(row: int, turn: list[int], finish: str, error: Exception = error) -> list[int] | None:
            if row == 5:
                raise error
            return None

        found: Exception | None = None
        try:
            play_apart(case, engine, alone)
        except Exception as raised:
            found = raised
        assert found is not None, f"{error!r} of an episode does not come out of `play`"
        assert found is error, f"{error!r} of an episode comes out as {found!r}"
    assert (case.generate(engine, RANDOM).finish != "error").all(), "the engine does not recover"


def check_failing_observation_apart(case: EngineCase) -> None:
    """Of episodes that go on by themselves, one that cannot be continued fails, is reported so, and harms no other.

    Its observation has an id outside the vocabulary. If all fail, `play` raises CompletionsFailed: nobody can train.
    """
    engine, row = case.open(), 9
    if not _plays(case, engine):
        return
    whole, _ = play_apart(case, engine, _observing(case))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tape, _ = play_apart(case, engine, _observing(case, [row]))
        try:
            play_apart(case, engine, _observing(case, range(ROWS)))
        except CompletionsFailed:
            pass
        else:
            raise AssertionError("the last turns of all episodes failed, and `play` returns")
    rows = np.arange(ROWS)
    np.testing.assert_array_equal(tape.finish == "error", rows == row, err_msg="episodes that failed")
    if case.claims.get("batch_invariant"):
        np.testing.assert_array_equal(tape.tokens[rows != row], whole.tokens[rows != row], err_msg="the others' tokens")


def check_newer_weights_apart(case: EngineCase) -> None:
    """Newer weights in the middle of episodes that go on by themselves are said of the tokens that they sample.

    Taken for those that the episode has begun with, corrections would correct the wrong tokens (`in_flight`).
    """
    engine = case.open()
    if not (case.claims.get("in_flight") and _plays(case, engine)):
        return
    waiting, begun, inner = [(case.other, 5)], threading.Event(), _observing(case)

    def alone(row: int, turn: list[int], finish: str) -> list[int] | None:
        begun.set()
        return inner(row, turn, finish)

    options = {"newer": lambda: waiting.pop() if waiting and begun.is_set() else None}
    tape, _ = play_apart(case, engine, alone, options=options)
    assert set(tape.versions[tape.mask]) <= {0, 5}, f"tokens are said to be of versions {set(tape.versions[tape.mask])}"
    for versions, mask in zip(tape.versions, tape.mask, strict=True):
        assert np.all(np.diff(versions[mask]) >= 0), "older weights after newer ones"
    drawn = tape.completions(np.zeros(ROWS, bool))
    assert_of_their_versions(case, drawn, attrs.evolve(drawn, mask=drawn.mask | drawn.observed), RANDOM)


CHECKS: Final[Sequence[Callable[[EngineCase], None]]] = tuple(
    value for name, value in sorted(globals().items()) if name.startswith("check_")
)
"""All checks of this module."""
