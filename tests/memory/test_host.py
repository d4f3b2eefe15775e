"""The compiler's memory is returned to the system after every large program."""

from __future__ import annotations

from types import SimpleNamespace

import jax
import pytest

from dovetail.config.settings import Mesh
from dovetail.devices.mesh import Devices
from dovetail.progress import COMPILED, TRACED, WORTH_TELLING
from dovetail_memory import host


@pytest.fixture
def heard(monkeypatch):
    """Who listens to JAX, once a run asks for its devices in a process that has not done so before."""
    host.give_back_after_compiling.cache_clear()
    found = []
    monkeypatch.setattr(jax.monitoring, "register_event_duration_secs_listener", found.append)
    yield found
    host.give_back_after_compiling.cache_clear()


def test_after_a_large_program_the_memory_is_returned(heard, monkeypatch):
    asked = []
    monkeypatch.setattr(host.sys, "platform", "linux")
    monkeypatch.setattr(host.ctypes, "CDLL", lambda _: SimpleNamespace(malloc_trim=asked.append))
    Devices.open(Mesh())
    Devices.open(Mesh())
    (listener,) = heard
    listener(COMPILED, WORTH_TELLING / 2)
    listener(TRACED, WORTH_TELLING * 2)
    assert not asked
    listener(COMPILED, WORTH_TELLING * 2)
    assert asked == [0]


def test_a_c_library_without_such_a_call_is_left_alone(heard, monkeypatch):
    monkeypatch.setattr(host.ctypes, "CDLL", lambda _: SimpleNamespace())
    Devices.open(Mesh())
    assert not heard
