"""Interaction `openenv`, against a server that is started here."""

import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from dovetail.errors import RunError
from dovetail.protocols import Turn

pytest.importorskip("openenv.core")
from dovetail_environments.interaction.openenv import OpenEnv

pytestmark = pytest.mark.slow


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
