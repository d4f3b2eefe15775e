"""The record of tool calls: a step that is done again takes the results that it had, and replay needs no tool."""

import itertools
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import attrs
import numpy as np
import pytest
from tests.agent.agent_loop.test_tool_agent import ADD, TOOL, Letters, say
from tests.core.training.test_loop import assert_same_parameters
from tests.programs import shared

from dovetail.errors import DovetailWarning, RunError
from dovetail.host.episodes import Generators
from dovetail.protocols import Call, Result
from dovetail_agent.agent_loop.tool_agent import ToolAgent
from dovetail_agent.record import FILE, Record
from dovetail_agent.runner import Ran
from dovetail_agent.tool_format.hermes import Hermes

ROOT = Path(__file__).parents[2]
CALL = Call("add", {"a": 1})


def counting():
    """Return a tool that counts the calls it has had, and keeps a state."""
    calls = itertools.count(1)

    def add(a: int, b: int, state: tuple | None) -> Result:
        """Add.

        Args:
            a: the first.
            b: the other.
            state: the calls so far.
        """
        return Result(f"call {next(calls)}", state=(*(state or ()), a))

    return attrs.evolve(TOOL, function=add, target=add)


def begin(folder, tool, *, only=False, **settings):
    loop = ToolAgent(**settings).open(Letters(), None, (tool,), Hermes()).recording(folder, only=only)
    words = np.arange(4, dtype=np.uint32).reshape(1, 2, 2)
    return loop.begin(({"prompt": "?"},), 2, Generators(words))


def test_a_step_that_is_done_again_takes_the_results_it_had(tmp_path):
    tool = counting()
    first = begin(tmp_path, tool)
    assert [say(first, ADD), say(first, ADD), say(first, ADD, row=1)] == [f"[tool:call {n}]" for n in (1, 2, 3)]
    again = begin(tmp_path, tool)
    assert [say(again, ADD), say(again, ADD, row=1), say(again, ADD)] == [f"[tool:call {n}]" for n in (1, 3, 2)]
    assert [episode.kept for episode in again.episodes] == [episode.kept for episode in first.episodes]
    assert again.episodes[0].kept["add"] == (1, 1)
    assert say(again, ADD) == "[tool:call 4]"


def test_a_line_that_was_being_written_is_written_again(tmp_path):
    say(begin(tmp_path, counting()), ADD)
    whole = (tmp_path / FILE).read_bytes()
    (tmp_path / FILE).write_bytes(whole[:-5])
    assert say(begin(tmp_path, counting()), ADD) == "[tool:call 1]"
    assert (tmp_path / FILE).read_bytes() == whole
    (tmp_path / FILE).write_bytes(b"[]\n" + whole)
    with pytest.raises(RunError, match=r"tools.jsonl', line 1, is not a call of a tool"):
        say(begin(tmp_path, counting()), ADD)


def test_a_replay_calls_no_tool(tmp_path):
    say(begin(tmp_path, counting()), ADD)
    replay = begin(tmp_path, counting(), only=True)
    assert say(replay, ADD) == "[tool:call 1]"
    with pytest.raises(RunError, match=r"tools.jsonl' has no result for this call of tool add: \{'a': 1, 'b': 2\}"):
        say(replay, ADD)


def test_without_a_record_nothing_is_written(tmp_path):
    assert say(begin(tmp_path, counting(), record=False), ADD) == "[tool:call 1]"
    assert not (tmp_path / FILE).exists()


def test_errors_and_what_was_late_are_results_too(tmp_path):
    record = Record(path=tmp_path / FILE)
    for turn, ran in enumerate([Ran("error: no", at_fault=True, more=3), Ran("", lost="the server is gone")]):
        assert record.results([(CALL, None)], [str(turn)], 0, lambda asked, ran=ran: [ran]) == [ran]
        assert Record(path=tmp_path / FILE, only=True).results([(CALL, None)], [str(turn)], 0, list) == [ran]


def test_a_state_that_cannot_be_written_is_not_recorded(tmp_path):
    ran, record = Ran("said", state={1, 2}), Record(path=tmp_path / FILE)
    with pytest.warns(DovetailWarning, match="the state of tool add is not made of JSON values"):
        assert record.results([(CALL, None)], ["turn"], 0, lambda asked: [ran]) == [ran]


def finish(folder, what=0, status=0):
    """Run `recorded.py` and return what it prints."""
    environment = os.environ | shared(folder.parent / "xla") | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "tests.agent.recorded", str(folder), str(what)]
    done = subprocess.run(command, check=False, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == status, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_run_killed_in_a_step_with_impure_tools_goes_on_as_if_it_had_not_been(tmp_path):
    """The undisturbed run takes its results from the record of the killed one: nothing else makes them the same."""
    killed, undisturbed = tmp_path / "killed", tmp_path / "undisturbed"
    finish(killed, what=60, status=-signal.SIGKILL)
    there = (killed / FILE).read_bytes()
    there = there[: there.rfind(b"\n") + 1]  # another call may have been writing its line
    assert there.count(b"\n") > 30
    finish(killed)
    assert (killed / FILE).read_bytes().startswith(there)
    undisturbed.mkdir()
    shutil.copy(killed / FILE, undisturbed)
    finish(undisturbed)
    for name in (FILE, "metrics.jsonl", "samples.jsonl", "eval.jsonl"):
        assert (killed / name).read_bytes() == (undisturbed / name).read_bytes(), name
    assert_same_parameters(killed, undisturbed)
    assert finish(killed, what="replay").endswith("\nthe same as in the record\n")
