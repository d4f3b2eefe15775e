"""Interaction `openenv`, against a server that is started here."""

import contextlib
import itertools
import json
import logging
import math
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from dovetail.errors import RunError
from dovetail.protocols import Turn

pytest.importorskip("openenv.core")
from websockets.sync.server import serve

from dovetail_environments.interaction.openenv import OpenEnv

pytestmark = pytest.mark.slow


def observation(**changes):
    return json.dumps(
        {"type": "observation", "data": {"observation": {"said": "a"}, "reward": 0.5, "done": False} | changes}
    )


ANSWERS = {
    "garbage": ("hello", r"its answer is none of OpenEnv \(Expecting value"),
    "half a line": ('{"type": "obs', r"its answer is none of OpenEnv \(Unterminated"),
    "bytes": (b"\xff\xfe\x00", "its answer is none of OpenEnv"),
    "a list": ("[1]", "its answer is none of OpenEnv"),
    "an observation that is a list": (observation(observation=[1]), r"the observation \[1\], which is not an object"),
    "a reward of text": (observation(reward="high"), "the reward 'high', which is not a finite number"),
    "a reward that is NaN": (observation(reward=math.nan), "the reward nan, which is not a finite number"),
    "an error in two lines": (json.dumps({"type": "error", "data": {"message": "no\nway"}}), "Server error: no way"),
    "gigabytes": (lambda: itertools.repeat("x" * 1_000_000), "exceeds limit of 16777216 bytes"),
    "a drip": (lambda: dripping(), "no answer within 1 seconds"),
    "nothing": (None, "no answer within 1 seconds"),
    "the end": (lambda: 1 / 0, "internal error"),
}


def dripping():
    for _ in range(100):
        time.sleep(0.1)
        yield "x"


@contextlib.contextmanager
def odd(answer, to):
    """Yield the address of a server that answers the first or the second request with something odd."""

    def handle(socket):
        for number, _ in enumerate(socket):
            chosen = answer if number == to else observation()
            if chosen is None:
                time.sleep(2)
            else:
                socket.send(chosen() if callable(chosen) else chosen)

    logging.getLogger("websockets").setLevel(logging.CRITICAL)
    with serve(handle, "127.0.0.1", 0, max_size=None) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.socket.getsockname()[1]}"


@pytest.mark.parametrize("to", [0, 1])
@pytest.mark.parametrize("what", ANSWERS)
def test_an_answer_that_is_none_is_one_line(what, to):
    answer, pattern = ANSWERS[what]
    limit = 1.0 if "within 1 seconds" in pattern else 30.0  # a busy machine takes more than a second for 16 MB
    begun = time.monotonic()
    with odd(answer, to) as url:
        world = OpenEnv(url=url, time_limit=limit, shown="said")
        if to == 0:
            with pytest.raises(RunError, match=pattern) as caught:
                world.reset({}, np.random.default_rng(0))
        else:
            state, _ = world.reset({}, np.random.default_rng(0))
            with pytest.raises(ConnectionError, match=pattern) as caught:
                world.step(state, Turn(text="x", number=0), None)
    assert time.monotonic() - begun < 10 * limit
    assert "\n" not in str(caught.value)
    assert url in str(caught.value)


def test_half_of_a_surrogate_pair_is_not_shown():
    with odd(r'{"type": "observation", "data": {"observation": {"said": "\ud800"}}}', 0) as url:
        _, said = OpenEnv(url=url, shown="said").reset({}, np.random.default_rng(0))
    assert said[0]["content"] == "\n?\n"


@pytest.fixture(scope="module")
def url():
    """Start a server, which the last test ends; it allows two sessions."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen([sys.executable, str(Path(__file__).with_name("environment_server.py")), str(port)])
    for _ in range(600):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.1)
    yield f"http://127.0.0.1:{port}"
    server.kill()
    server.wait()


def test_an_episode_is_played_over_a_socket(url):
    world = OpenEnv(url=url, action="code", shown="said", columns=("hint",), sessions=2)
    state, said = world.reset({"prompt": "", "hint": "of steel"}, np.random.default_rng(0))
    assert said[0]["content"] == "\na safe of steel\n"
    steps = []
    for number in range(3):
        steps.append(world.step(state, Turn(text=str(number), number=number), None))
        state = steps[-1].state
        if steps[-1].done:
            break
        assert steps[-1].messages[0]["content"] == f"\nno, {number + 1}\n"
    assert [step.reward for step in steps] == [0] * number + [1]
    assert [step.done for step in steps] == [False] * number + [True]


def test_more_episodes_than_sessions_and_old_states_until_the_server_dies(url):
    world = OpenEnv(url=url, action="code", shown="said", sessions=2)
    states = [world.reset({}, np.random.default_rng(seed))[0] for seed in range(4)]
    wrong = [world.step(state, Turn(text="9", number=0), None) for state in states]
    assert [step.messages[0]["content"] for step in wrong] == ["\nno, 1\n"] * 4
    again = world.step(states[0], Turn(text="9", number=0), None)
    assert again == wrong[0]
    assert world.step(again.state, Turn(text="9", number=1), None).messages[0]["content"] == "\nno, 2\n"

    with pytest.raises(Exception, match=r"(?i)clos|connect|receive"):
        world.step(states[1], Turn(text="die", number=0), None)
    world = OpenEnv(url=url, action="code", time_limit=10)
    with pytest.raises(
        RunError, match=rf"the OpenEnv server {url} cannot begin an episode: Failed to connect to ws://"
    ):
        world.reset({}, np.random.default_rng(0))
