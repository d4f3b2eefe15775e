"""The start of a server that does not take the token that it was given."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import attrs
import pytest
from tests.rollout.fake_vllm import FakeVllm

from dovetail.errors import RunError
from dovetail_rollout.hosted.served import Served
from dovetail_rollout.hosted.vanilla_process import Calls, VanillaProcess
from dovetail_rollout.hosted.vllm_server import Serving, VllmServer
from dovetail_rollout.kinds import Program
from dovetail_rollout.rollout.sglang_jax import SglangProcess

TRIES = 20


@attrs.define
class Started:
    """What runs at an address; it is asked a few times whether it is ready."""

    url: str
    ours: bool = True

    def wait_for(self, ready: Callable[[], bool], seconds: float) -> None:
        if not any(ready() for _ in range(TRIES)):
            raise RunError("it was not ready")

    def epitaph(self) -> str:
        return ""

    def close(self) -> None:
        """Do nothing, since nothing was started."""


@attrs.define
class There:
    """A place in which each start is at the next of some addresses."""

    urls: list[str]
    started: int = 0

    def run(self, program: Program, folder: Path) -> Started:
        self.started += 1
        return Started(self.urls[self.started - 1])

    def see(self, folder: Path) -> Path:
        return folder


HOSTS: dict[str, tuple[str, Callable[[There], Served]]] = {
    "vanilla": (
        "DOVETAIL_VANILLA_TOKEN",
        lambda place: VanillaProcess(place=place, options={}, start_seconds=1.0, sizes=Calls(at_once=1, parts=1)),
    ),
    "sglang_jax": (
        "DOVETAIL_SGLANG_TOKEN",
        lambda place: SglangProcess(place=place, python="python", options={}, start_seconds=1.0, request_seconds=1.0),
    ),
    "vllm": (
        "VLLM_API_KEY",
        lambda place: VllmServer(
            place=place,
            serving=Serving(command=("vllm",), sleeps=False, flags=(), start_seconds=1.0),
            sleeps=False,
            calls=1,
        ),
    ),
}


@pytest.fixture
def servers():
    """Return two servers that ask for a key that nobody has."""
    with ExitStack() as stack:
        found = [stack.enter_context(FakeVllm()) for _ in range(2)]
        for each in found:
            each.answers["/health"] = 401, {"error": {"message": "no token"}}
        yield found


@pytest.mark.parametrize("name", HOSTS)
def test_a_server_that_does_not_take_its_token_is_refused_at_once_and_the_variable_is_named(name, servers, tmp_path):
    variable, make = HOSTS[name]
    place = There([each.url for each in servers])
    with pytest.raises(RunError) as refused:
        make(place).start(tmp_path)
    assert str(refused.value) == (
        f"{name} at {servers[1].url} answers with status 401: no token: it does not have the token that its process was"
        f" to get in {variable}; what starts it has to pass that variable on as it is"
    )
    assert [len(each.of("/health")) for each in servers] == [1, 1], "each is asked once, and the wait is over"


def test_a_port_that_a_server_of_another_run_has_taken_is_left(servers, tmp_path):
    first, second = servers
    second.answers.clear()
    place = There([first.url, second.url])
    host = HOSTS["vanilla"][1](place)
    host.start(tmp_path)
    assert host.client is not None
    assert host.client.url == second.url
    assert place.started == 2


def test_a_host_that_was_stopped_is_not_healthy(servers, tmp_path):
    servers[0].answers.clear()
    host = HOSTS["vanilla"][1](There([servers[0].url]))
    host.start(tmp_path)
    assert host.healthy()
    host.stop()
    assert not host.healthy()
