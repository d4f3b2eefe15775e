"""What keeps processes from becoming one run is one line."""

import json
import socket
import threading
import time

import jax
import pytest
from tests.core.training.several import ended, free_port, start_several
from tests.core.training.tiny import TINY

from dovetail.cli import main, parse
from dovetail.config import load
from dovetail.errors import RunError
from dovetail_executor.hosts import join
from dovetail_executor.hosts.command import identity, meeting
from dovetail_executor.hosts.join import Meeting, joined


@pytest.mark.slow
def test_processes_that_are_about_to_do_something_else_are_refused(tmp_path):
    found = ended(start_several(tmp_path / "run", 2, (*TINY, "mesh.fsdp=2"), own=[(), ("train.lr=0.5",)]))
    for status, said in found:
        assert status == 1
        (line,) = said.splitlines()
        assert "process 1 on " in line
        assert "settings: train.lr is 0.5, and 0.01 in process 0" in line
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--coordinator", "here"], "is not HOST:PORT"),
        (["--coordinator", "here:0", "--processes", "2", "--process", "0"], "is not HOST:PORT"),
        (["--coordinator", "here:1234"], "say all of --coordinator HOST:PORT --processes N --process I"),
        (["--coordinator", "auto", "--processes", "2"], "say all of"),
        (["--coordinator", "here:1234", "--processes", "2", "--process", "2"], "counted from 0"),
        (["--processes", "2", "--process", "1"], "need --coordinator HOST:PORT"),
    ],
)
def test_what_a_process_is_told_is_checked(arguments, said):
    with pytest.raises(RunError, match=said):
        meeting(parse(["train", "quickstart", *arguments]))


def test_one_process_meets_nobody():
    with joined(Meeting(coordinator="nowhere.example:1", processes=1, process=0), dict):
        pass


def test_a_coordinator_that_does_not_answer_is_a_line(tmp_path, capfd, no_helper):
    address = f"127.0.0.1:{free_port()}"
    where = ["--coordinator", address, "--processes", "2", "--process", "1", "--wait", "0"]
    assert main(["train", "quickstart", "--folder", str(tmp_path / "run"), *where]) == 1
    assert f"error: the coordinator {address} has not answered process 1 on " in capfd.readouterr().err


def test_a_port_that_is_taken_is_a_line(tmp_path, capfd, no_helper):
    with socket.socket() as other:
        other.bind(("", 0))
        other.listen()
        port = other.getsockname()[1]
        where = ["--coordinator", f"127.0.0.1:{port}", "--processes", "2", "--process", "0"]
        assert main(["train", "quickstart", "--folder", str(tmp_path / "run"), *where]) == 1
    assert f"error: port {port} cannot be used on " in capfd.readouterr().err


@pytest.fixture
def no_helper(monkeypatch):
    """Leave the stderr of the tests alone, and the limit on core files."""
    monkeypatch.setattr("dovetail_executor.hosts.aborts.translate_from_now_on", lambda: None)
    monkeypatch.setattr("dovetail_executor.hosts.aborts.know", lambda **what: None)
    monkeypatch.setattr("resource.setrlimit", lambda *limit: None)


@pytest.mark.parametrize(("ahead", "said"), [(-7200, "7,200 s behind"), (3600, "3,600 s ahead of"), (2, "")])
def test_clocks_that_differ_are_a_warning(monkeypatch, recwarn, ahead, said):
    monkeypatch.setattr(jax, "process_index", lambda: 1)
    monkeypatch.setattr(join, "wait_for", lambda key: repr(time.time() - ahead).encode())
    join._compare_clocks(["alpha", "beta"])  # pyright: ignore[reportPrivateUsage]
    warned = [str(each.message) for each in recwarn]
    expected = f"the clock of process 1 on beta is {said} that of process 0 on alpha; nothing is computed from it"
    assert [text.startswith(expected) for text in warned] == ([True] if said else [])


class Coordinator:
    """The keys of a coordinator, where process 1 has reported a failure, and all of the others have heard."""

    def __init__(self):
        self.keys = {join.FAILED: '{"process": 1, "host": "beta", "message": "no memory"}', join.HEARD: 1}

    def blocking_key_value_get(self, key, milliseconds):
        return self.keys[key]

    def key_value_set(self, key, value):
        if key in self.keys:
            raise jax.errors.JaxRuntimeError(f"ALREADY_EXISTS: {key}")
        self.keys[key] = value

    def key_value_increment(self, key, by):
        self.keys[key] += by

    def key_value_try_get(self, key):
        return str(self.keys[key])


class Ended(BaseException):
    """In place of the end of the process."""


@pytest.fixture
def of_two(monkeypatch):
    """Process 0 of two, with the keys of its coordinator."""
    coordinator, at_exit = Coordinator(), []

    def end(status):
        raise Ended(status)

    monkeypatch.setattr(join, "client", lambda: coordinator)
    monkeypatch.setattr(jax, "process_index", lambda: 0)
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr("os._exit", end)
    monkeypatch.setattr("atexit.register", at_exit.append)
    coordinator.at_exit = at_exit
    return coordinator


@pytest.mark.parametrize(
    ("function", "first", "other", "said"),
    [
        ("run.folder.plugins", {"dovetail": "0.1.0"}, {"dovetail": "9.9"}, "versions: dovetail is 9.9, and 0.1.0"),
        ("run.folder.plugins", {"acme": "1.1"}, {}, "versions: acme is absent, and 1.1"),
        ("run.folder.libraries", {"jax": "0.10.0"}, {"jax": "0.9.2"}, "versions: jax is 0.9.2, and 0.10.0"),
        (
            "run.code.codes",
            {"loss grpo": "beef"},
            {"loss grpo": "f00d"},
            "code of components: loss grpo is f00d, and beef",
        ),
    ],
)
def test_a_process_with_another_version_or_other_code_is_refused(
    monkeypatch, tmp_path, of_two, no_helper, function, first, other, said
):
    config, found = load(None, []), []
    for value in (first, other):
        monkeypatch.setattr(f"dovetail.{function}", lambda *_, value=value: value)
        found.append(identity(tmp_path, config))
    of_two.keys[f"{join.HELLO}/1"] = json.dumps({"host": "beta (process id 7)", **found[1]})
    monkeypatch.setattr(join, "wait_for", of_two.keys.__getitem__)
    with pytest.raises(RunError) as error:
        join._compare(found[0])  # pyright: ignore[reportPrivateUsage]
    begin, _, differs = str(error.value).partition(": ")
    assert begin.startswith("process 1 on beta (process id 7) is about to do something else than process 0 on ")
    assert differs == f"{said} in process 0"


def test_a_process_ends_with_another_one(of_two, capfd):
    with pytest.raises(Ended):
        join._watch(threading.Event(), threading.Lock())  # pyright: ignore[reportPrivateUsage]
    (line,) = capfd.readouterr().err.splitlines()
    assert line == "error: process 1 on beta has failed, and this one ends with it: no memory"
    assert of_two.keys[join.HEARD] == 2


def test_a_process_that_leaves_for_an_error_of_its_own_says_no_more(of_two, capfd):
    turn = threading.Lock()
    join._leave_because_of(RunError("too few heads"), 60, turn)  # pyright: ignore[reportPrivateUsage]
    join._watch(threading.Event(), turn)  # pyright: ignore[reportPrivateUsage]
    assert capfd.readouterr().err == ""
    with pytest.raises(Ended):
        of_two.at_exit[0]()
    assert of_two.keys[join.HEARD] == 2
