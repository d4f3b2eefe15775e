"""Episodes on a host that do not wait for one another: each asks for its next turn as soon as its own is there."""

import threading
import time
import warnings
from collections import Counter
from contextlib import closing

import attrs
import numpy as np
import pytest
from tests.rollout.fake_vllm import FakeVllm
from tests.rollout.hosted.test_turns import PROMPTS, QWEN2, ROOM
from tests.rollout.hosted_case import case

import dovetail
from dovetail.errors import CompletionsFailed, RunError
from dovetail.host.episodes import Rounds
from dovetail_kit.rollout.case import make_keys
from dovetail_rollout.hosted import served

ROWS = 16
PATIENCE = 60.0
"""Seconds that a test waits for what must happen; none waits for it to pass."""


def draw(prompt, asked):
    """Draw six tokens, from the seed alone, or as many as may be."""
    count = min(6, asked["max_tokens"])
    return np.random.default_rng(asked["seed"]).integers(2, 12, count).tolist(), [-1.0] * count


@pytest.fixture
def fake():
    with FakeVllm(draw=draw) as server:
        yield server


@pytest.fixture(params=["one server", "two replicas"])
def engine(request, fake, tmp_path):
    if request.param == "one server":
        with closing(case("vllm", tmp_path, QWEN2, url=fake.url, probe=0.0).open()) as opened:
            yield opened
    else:
        with FakeVllm(draw=draw) as other:
            other.calls = fake.calls
            launcher = dovetail.get("launcher", "urls").bind(urls=(fake.url, other.url))
            with closing(case("vllm", tmp_path, QWEN2, launcher=launcher, probe=0.0).open()) as opened:
                yield opened


class Agent:
    """Says something short after each turn; row r has `turns[r % len(turns)]` turns, and `before(row)` is called first."""

    def __init__(self, turns, before=lambda row: None):
        self.turns, self.before, self.done = turns, before, Counter()

    def alone(self, row, turn, finish):
        self.before(row)
        self.done[row] += 1
        return None if self.done[row] >= self.turns[row % len(self.turns)] else [2, 3]

    def then(self, rows, turns, finish):
        return [self.alone(*each) for each in zip(rows, turns, finish, strict=True)]


def play(engine, agent, sampling=ROOM, turn_tokens=40, *, rounds=False, **options):
    player = Rounds(engine=engine, pad_id=0, max_turn_tokens=turn_tokens, options=options)
    alone = None if rounds else agent.alone
    return player(PROMPTS, PROMPTS > 0, make_keys(0, 4, 4), sampling, agent.then, alone)


def assert_same(here, there):
    for name in ("tokens", "logps", "mask", "observed", "turns", "finish", "versions"):
        np.testing.assert_array_equal(getattr(here, name), getattr(there, name), err_msg=name)


@pytest.mark.parametrize("stop", [(), (" 7",)])
def test_they_are_the_episodes_of_rounds(engine, fake, stop):
    sampling = attrs.evolve(ROOM, max_tokens=30, stop=stop)
    here, here_full = play(engine, Agent([2, 9, 1, 3]), sampling, turn_tokens=7)
    asked = Counter(call["seed"] for call in fake.of("/v1/completions"))
    there, there_full = play(engine, Agent([2, 9, 1, 3]), sampling, turn_tokens=7, rounds=True)
    assert_same(here, there)
    np.testing.assert_array_equal(here_full, there_full)
    assert asked + asked == Counter(call["seed"] for call in fake.of("/v1/completions"))
    assert set(asked.values()) == {1}


def test_an_episode_whose_tool_is_slow_holds_up_no_other(engine):
    others = threading.Event()
    left = Counter(dict.fromkeys(range(1, ROWS), 3))

    def before(row):
        if row == 0:
            assert others.wait(PATIENCE), "the others wait for row 0"
            return
        left[row] -= 1
        if not +left:
            others.set()

    tape, _ = play(engine, Agent([3], before))
    assert tape.turns.max(axis=1).tolist() == [2] * ROWS


def test_an_episode_whose_turn_is_slow_holds_up_no_other(engine, fake, monkeypatch):
    others, left, slow = threading.Event(), Counter(dict.fromkeys(range(1, ROWS), 3)), []

    def drawn(prompt, asked):
        slow.append(asked["seed"])
        if asked["seed"] == slow[0]:
            assert others.wait(PATIENCE), "the others wait for a turn"
        return draw(prompt, asked)

    def before(row):
        left[row] -= 1
        if sum(count <= 0 for count in left.values()) >= ROWS - 1:
            others.set()

    left[0] = 3
    monkeypatch.setattr(fake, "draw", drawn)
    tape, _ = play(engine, Agent([3], before))
    assert tape.turns.max(axis=1).tolist() == [2] * ROWS


def test_no_more_requests_are_with_a_server_than_it_may_have(fake, tmp_path, monkeypatch):
    now, most, lock = [0], [0], threading.Lock()

    def drawn(prompt, asked):
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        time.sleep(0.002)
        with lock:
            now[0] -= 1
        return draw(prompt, asked)

    monkeypatch.setattr(fake, "draw", drawn)
    with closing(case("vllm", tmp_path, QWEN2, url=fake.url, probe=0.0, connections=3).open()) as engine:
        together = threading.Barrier(ROWS)
        play(engine, Agent([2], lambda row: together.wait(PATIENCE)))  # all are away at once
    assert most[0] <= 3


def test_each_may_write_as_many_tokens_as_its_own_room(engine, fake):
    tape, full = play(engine, Agent([9]))
    assert set(tape.finish) == {"length"}
    assert full.all()
    assert tape.filled.tolist() == [44] * ROWS
    sizes = {(len(call["prompt"]), call["max_tokens"]) for call in fake.of("/v1/completions")}
    assert sizes == {(20 + 8 * turn, min(40, 44 - 8 * turn)) for turn in range(6)}


@pytest.mark.parametrize("error", [RunError("no more"), OSError("a disk"), ZeroDivisionError("a bug")])
def test_what_an_agent_loop_raises_ends_the_run_as_it_is(engine, error):
    def before(row):
        if row == 5:
            raise error

    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a host would be started again, which says so
        with pytest.raises(type(error), match=str(error)) as raised:
            play(engine, Agent([2], before))
        assert raised.value is error
        tape, _ = play(engine, Agent([2]))  # the servers are well, and are neither lost nor started again
    assert tape.turns.max(axis=1).tolist() == [1] * ROWS


def test_an_observation_that_cannot_be_read_fails_alone(engine):
    agent = Agent([2])
    inner = agent.alone
    agent.alone = lambda row, turn, finish: inner(row, turn, finish) and [2, 1000 if row == 9 else 3]
    with pytest.warns(
        RuntimeWarning, match=r"completions \[9\] failed and are left out: a prompt is empty, or has ids"
    ):
        tape, _ = play(engine, agent)
    assert (tape.finish == "error").nonzero()[0].tolist() == [9]


def test_all_of_them_may_fail(engine, fake, monkeypatch):
    monkeypatch.setattr(fake, "draw", lambda prompt, asked: ([], []))
    fake.answers["/v1/completions"] = (400, {"error": {"message": "never"}})
    if type(engine.host).__name__ == "Fleet":
        pytest.skip("the other replica answers")
    with pytest.raises(CompletionsFailed, match="every completion failed: never"):
        play(engine, Agent([2]))


def test_a_server_that_dies_is_asked_again_only_for_what_it_has_not_answered(fake, tmp_path, monkeypatch):
    """No tool is called twice, and no turn is sampled again whose answer was there."""
    monkeypatch.setattr(served, "HEALTH_SECONDS", 0.05)
    monkeypatch.setattr("dovetail_rollout.hosted.vllm_server.PAUSES", ())
    died = []

    def drawn(prompt, asked):
        if len(prompt) > 28 and not died:  # in some third turn
            died.append(asked["seed"])
            return None, None
        return draw(prompt, asked)

    with closing(case("vllm", tmp_path, QWEN2, url=fake.url, probe=0.0).open()) as engine:
        whole, _ = play(engine, Agent([4]))
        monkeypatch.setattr(fake, "draw", drawn)
        monkeypatch.setattr(fake, "complete", lambda asked, complete=fake.complete: dying(complete, asked))
        agent = Agent([4])
        with pytest.warns(RuntimeWarning, match="rollout engine 'vllm' is restarted"):
            tape, _ = play(engine, agent)
    assert died
    assert agent.done == dict.fromkeys(range(ROWS), 4)
    assert_same(tape, whole)


def dying(complete, asked):
    answer = complete(asked)
    if answer["choices"][0]["token_ids"] is None:
        raise ConnectionAbortedError("the server dies")
    return answer


def test_newer_weights_are_taken_between_and_within_turns(fake, tmp_path):
    each = case("vllm", tmp_path, QWEN2, url=fake.url, probe=0.0)
    with closing(each.open()) as engine:
        newer, first = [(each.other, 2)], threading.Event()
        agent = Agent([3], lambda row: first.set())
        tape, _ = play(engine, agent, newer=lambda: newer.pop() if newer and first.is_set() else None)
    assert engine.version == 2
    assert tape.turns.max(axis=1).tolist() == [2] * ROWS
    for row in range(ROWS):
        versions = tape.versions[row, tape.mask[row]]
        assert set(versions) <= {0, 2}
        assert np.all(np.diff(versions) >= 0)


def test_other_weights_in_the_middle_are_refused(fake, tmp_path):
    each = case("vllm", tmp_path, QWEN2, url=fake.url, probe=0.0)
    with closing(each.open()) as engine, pytest.raises(RunError, match="replaced in the middle of an episode"):
        play(engine, Agent([2], lambda row: setattr(engine, "version", 1)))


def test_the_conversations_of_a_lost_replica_go_on_with_another(fake, tmp_path, monkeypatch):
    """No tool is called twice, and what was said before is the prompt of the next turn."""
    monkeypatch.setattr("dovetail_rollout.hosted.vllm_server.PAUSES", ())

    def dies(asked, complete=fake.complete):
        if len(asked["prompt"]) > 28:  # in some third turn
            fake.answers["/health"] = (503, {})
            raise ConnectionAbortedError("the replica dies")
        return complete(asked)

    with FakeVllm(draw=draw) as other:
        launcher = dovetail.get("launcher", "urls").bind(urls=(fake.url, other.url))
        each = case("vllm", tmp_path, QWEN2, launcher=launcher, probe=0.0, restarts=0)
        with closing(each.open()) as engine:
            whole, _ = play(engine, Agent([4]))
            monkeypatch.setattr(fake, "complete", dies)
            agent = Agent([4])
            with pytest.warns(RuntimeWarning, match="replica 0 is lost"):
                tape, _ = play(engine, agent)
    assert agent.done == dict.fromkeys(range(ROWS), 4)
    assert_same(tape, whole)


def test_an_episode_goes_on_at_the_replica_that_has_its_beginning(fake, tmp_path):
    """Both have nothing to do by then, so that it would go to the first one otherwise."""
    others, ended = threading.Event(), Counter()

    def before(row):
        ended[row] += 1
        if row == 1:
            assert others.wait(PATIENCE), "the others do not end"
        elif len(ended) == ROWS:
            others.set()

    with FakeVllm(draw=draw) as other:
        launcher = dovetail.get("launcher", "urls").bind(urls=(fake.url, other.url))
        with closing(case("vllm", tmp_path, QWEN2, launcher=launcher, probe=0.0).open()) as engine:
            tape, _ = play(engine, Agent([1, 4, *[1] * (ROWS - 2)], before))
        asked = [[len(call["prompt"]) for call in server.of("/v1/completions")] for server in (fake, other)]
    assert tape.turns.max(axis=1).tolist() == [0, 3] + [0] * (ROWS - 2)
    longer = [[length for length in each if length > PROMPTS.shape[1]] for each in asked]
    assert longer == [[], [28, 36, 44]]
