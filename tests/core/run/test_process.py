"""How a process is prepared for a run, and left as it was after a call."""

import logging
import os
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

import jax
import pytest

from dovetail.errors import DovetailWarning
from dovetail.run.process import CACHE, LATER, THREADS, cache_folder, prepare, prepared, refusal

FOLDER = "jax_compilation_cache_dir"


@pytest.fixture(autouse=True)
def nothing_chosen():
    """Neither the program nor the environment has chosen a folder yet, and afterwards all is as it was."""
    before = getattr(jax.config, FOLDER)
    jax.config.update(FOLDER, None)
    yield
    jax.config.update(FOLDER, before)


@pytest.fixture
def prepared_here():
    """The process is prepared for the time of a test."""
    with ExitStack() as stack:
        yield lambda: stack.push(prepare())


@pytest.mark.parametrize(
    ("variables", "folder"),
    [
        ({"XDG_CACHE_HOME": "/c"}, "/c/dovetail/xla"),
        ({"XDG_CACHE_HOME": ""}, "/h/.cache/dovetail/xla"),
        ({"XDG_CACHE_HOME": "relative"}, "/h/.cache/dovetail/xla"),
        ({}, "/h/.cache/dovetail/xla"),
        ({CACHE: "gs://bucket/a", "XDG_CACHE_HOME": "/c"}, "gs://bucket/a"),
        ({CACHE: ""}, ""),
    ],
)
def test_where_programs_are_kept(variables, folder, monkeypatch):
    for name in (CACHE, "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in ({"HOME": "/h"} | variables).items():
        monkeypatch.setenv(name, value)
    assert cache_folder() == folder


def test_without_a_home_nothing_is_kept(monkeypatch, prepared_here):
    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv(CACHE, raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    assert cache_folder() == ""
    prepared_here()
    assert not getattr(jax.config, FOLDER)


def test_what_can_be_written(tmp_path):
    (tmp_path / "file").touch()
    assert refusal(str(tmp_path / "a" / "b")) == ""
    assert refusal("gs://bucket/a") == ""
    assert "File exists" in refusal(str(tmp_path / "file"))
    assert "Not a directory" in refusal(str(tmp_path / "file" / "a"))
    assert "null" in refusal("a\0b")


def test_a_cache_that_cannot_be_written_is_one_warning(tmp_path, monkeypatch, prepared_here):
    (tmp_path / "file").touch()
    monkeypatch.setenv(CACHE, str(tmp_path / "file"))
    with pytest.warns(DovetailWarning, match=r"not kept: folder '.*file' cannot be written: File exists; set JAX_"):
        prepared_here()
    assert not getattr(jax.config, FOLDER)


def state():
    """What a call may change in the process."""
    absl, asyncio = logging.getLogger("absl"), logging.getLogger("asyncio")
    hooks = sys.excepthook, sys.unraisablehook, threading.excepthook
    return (*hooks, absl.level, tuple(absl.filters), tuple(asyncio.filters), dict(jax.config.values))


def test_a_call_leaves_the_process_as_it_was():
    before = state()
    with prepared():
        assert [now is then for now, then in zip(state(), before, strict=True)][:3] == [False] * 3
        assert getattr(jax.config, FOLDER) == cache_folder()
    assert state() == before
    with pytest.raises(ZeroDivisionError), prepared():
        raise ZeroDivisionError
    assert state() == before


def test_the_last_of_calls_side_by_side_leaves_it_as_it_was():
    before, first, second = state(), prepared(), prepared()
    first.__enter__()
    inside = state()
    second.__enter__()
    first.__exit__(None, None, None)
    assert state() == inside
    second.__exit__(None, None, None)
    assert state() == before


def test_absl_does_not_configure_logging_for_good(monkeypatch):
    from absl import logging as of_absl

    monkeypatch.setattr(logging.root, "handlers", [])
    with prepared():
        of_absl.vlog(9, "as orbax does when it is imported")
        assert logging.root.handlers == [logging.lastResort]
    assert logging.root.handlers == []


def test_a_hook_that_came_during_a_call_stays(monkeypatch):
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # so that it is put back after the test
    own = lambda *_: None  # noqa: E731
    with prepared():
        sys.excepthook = own
    assert sys.excepthook is own


def test_the_folder_that_a_program_has_chosen_stays(tmp_path):
    jax.config.update(FOLDER, str(tmp_path))
    with prepared():
        assert getattr(jax.config, FOLDER) == str(tmp_path)
    assert getattr(jax.config, FOLDER) == str(tmp_path)


def test_only_what_nobody_awaits_any_more_is_hushed(monkeypatch):
    told = []
    monkeypatch.setattr(sys, "excepthook", lambda *found: told.append(found[1]))
    monkeypatch.setattr(threading, "excepthook", lambda found: told.append(found.exc_value))
    late, other = RuntimeError(LATER[0]), RuntimeError("mine")
    with prepared():
        for error in (late, other):
            sys.excepthook(RuntimeError, error, None)
            threading.excepthook(threading.ExceptHookArgs((RuntimeError, error, None, None)))
    assert told == [other, other]


QUEUED = """
import os
os.sched_setaffinity(0, list(os.sched_getaffinity(0))[:2])
from dovetail.run.process import prepare
prepare()
import jax
from jax.sharding import AxisType, PartitionSpec
with jax.set_mesh(jax.make_mesh((2,), ("part",), (AxisType.Auto,))):
    cut = jax.NamedSharding(jax.sharding.get_mesh(), PartitionSpec("part"))
    x = jax.device_put(jax.numpy.ones((32, 32)), cut)
    step = jax.jit(lambda x: jax.numpy.tanh(x @ x), out_shardings=cut)
    for _ in range(20):
        for _ in range(100):
            x = step(x)
        x.block_until_ready()
"""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="only Linux lets a process choose its cores")
def test_many_programs_of_several_devices_of_a_cpu_do_not_wait_for_one_another_for_ever():
    chosen = {"JAX_NUM_CPU_DEVICES": "2", "XLA_FLAGS": "--xla_cpu_collective_call_terminate_timeout_seconds=25"}
    subprocess.run([sys.executable, "-c", QUEUED], env=os.environ | chosen, check=True, capture_output=True)


@pytest.mark.parametrize(
    ("variables", "threads"),
    [
        ({}, None),
        ({"XLA_FLAGS": "--xla_force_host_platform_device_count=1"}, None),
        ({"XLA_FLAGS": "--xla_a=1 --xla_force_host_platform_device_count=600"}, "1200"),
        ({"XLA_FLAGS": "--xla_force_host_platform_device_count=600", THREADS: "3"}, "3"),
    ],
)
def test_threads_of_several_devices(variables, threads, monkeypatch):
    for name in (THREADS, "XLA_FLAGS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with prepared():
        assert os.environ.get(THREADS) == threads
    assert os.environ.get(THREADS) == variables.get(THREADS)
