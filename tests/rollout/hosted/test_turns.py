"""Episodes of several turns on a host: nothing is asked for that no episode needs."""

from collections import Counter
from contextlib import closing

import attrs
import numpy as np
import pytest
from tests.rollout.fake_vllm import FakeVllm
from tests.rollout.hosted_case import case, qwen2

from dovetail.config.settings import Sampling
from dovetail.errors import RunError
from dovetail.host.episodes import ByRounds, Rounds
from dovetail_kit.rollout.case import make_keys
from dovetail_kit.rollout.episodes import _Again

QWEN2 = qwen2(width=16, head_dim=8)
PROMPTS = np.arange(80).reshape(4, 20) % 12 + 1
ROOM = Sampling(max_tokens=44)
"""As much as a server takes after such a prompt, whose limit is 64."""


@pytest.fixture
def fake():
    """A server that draws six tokens, from the seed alone, or as many as it may."""

    def draw(prompt, asked):
        count = min(6, asked["max_tokens"])
        return np.random.default_rng(asked["seed"]).integers(2, 12, count).tolist(), [-1.0] * count

    with FakeVllm(draw=draw) as server:
        yield server


@pytest.fixture
def opened(fake, tmp_path):
    each = case("vllm", tmp_path, QWEN2, url=fake.url, probe=0.0)
    with closing(each.open()) as engine:
        yield each, engine


def until(turns):
    """Return an agent that says something short after each turn; row r has `turns[r % len(turns)]` turns."""
    done = Counter()

    def then(rows, ended, finish):
        done.update(rows)
        return [None if done[row] >= turns[row % len(turns)] else [2, 3] for row in rows]

    return then


def play(engine, then, sampling=ROOM, turn_tokens=40, **options):
    rounds = Rounds(engine=engine, pad_id=0, max_turn_tokens=turn_tokens, options=options)
    return rounds(PROMPTS, PROMPTS > 0, make_keys(0, 4, 4), sampling, then)


def test_a_round_asks_for_the_episodes_that_go_on_and_each_once(opened, fake):
    _, engine = opened
    play(engine, until([1, 1, 2, 1, 3]))
    asked = Counter(call["seed"] for call in fake.of("/v1/completions"))
    assert asked.total() == 16 + 6 + 3
    assert set(asked.values()) == {1}


def test_a_turn_is_asked_for_no_more_than_its_episode_has_room_for(opened, fake):
    """The server refuses what would be longer than its context, and the episodes would be left out."""
    _, engine = opened
    tape, full = play(engine, until([9]))
    assert set(tape.finish) == {"length"}
    assert full.all()
    assert tape.filled.tolist() == [44] * 16
    sizes = {(len(call["prompt"]), call["max_tokens"]) for call in fake.of("/v1/completions")}
    assert sizes == {(20 + 8 * turn, min(40, 44 - 8 * turn)) for turn in range(6)}


@pytest.mark.parametrize("stop", [(), (" 7",)])
def test_they_are_the_episodes_that_generate_begins_again_each_turn(opened, stop):
    _, engine = opened
    sampling = attrs.evolve(ROOM, max_tokens=30, stop=stop)
    here, here_full = play(engine, until([2, 9, 1, 3]), sampling, turn_tokens=7)
    there, there_full = play(_Again(engine), until([2, 9, 1, 3]), sampling, turn_tokens=7)
    for name in ("tokens", "logps", "mask", "observed", "turns", "finish", "versions"):
        np.testing.assert_array_equal(getattr(here, name), getattr(there, name), err_msg=name)
    np.testing.assert_array_equal(here_full, there_full)


def test_weights_are_replaced_in_an_episode_only_if_it_asks_for_newer_ones(opened):
    each, engine = opened
    agent = until([2])

    def syncs(*ended):
        engine.sync(each.other, version=1)
        return agent(*ended)

    with pytest.raises(RunError, match="replaced in the middle of an episode"):
        play(engine, syncs)
    newer = [(each.other, 2)]
    tape, _ = play(engine, until([2]), newer=lambda: newer.pop() if newer else None)
    assert set(tape.versions[tape.turns > 0]) == {2}
    assert not np.any(tape.finish == "error")


def test_a_host_that_compiles_calls_of_each_size_has_rounds_of_few_sizes(opened):
    _, engine = opened
    compiling = attrs.evolve(engine, compiles=True)
    assert compiling.turns(PROMPTS, PROMPTS > 0, make_keys(0, 4, 4), ROOM, 40) is None
    rounds = Rounds(engine=compiling, pad_id=0, max_turn_tokens=40)
    assert isinstance(rounds._turns(PROMPTS, PROMPTS > 0, make_keys(0, 4, 4), ROOM), ByRounds)
