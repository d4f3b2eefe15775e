"""Episodes of `tool_agent` that are answered one by one, from several threads, are those of rounds."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType

import attrs
import numpy as np
import pytest
from tests.agent.agent_loop.test_tool_agent import ADD, EOS, Letters, begin

from dovetail.errors import RunError
from dovetail.host.episodes import Generators
from dovetail.protocols import Result, Step, Tool
from dovetail_agent.agent_loop._toolbox import Toolbox
from dovetail_agent.agent_loop.tool_agent import ToolAgent
from dovetail_agent.record import FILE
from dovetail_agent.tool_format.hermes import Hermes

ROWS = 8
SCRIPT = (ADD, "one", ADD + ADD, "two", "<tool_call>{", "three")
PATIENCE = 60.0


@attrs.frozen(kw_only=True)
class Draws:
    """Says a number drawn for each turn, and ends after three; it is never asked by two threads at once."""

    busy: threading.Lock = attrs.field(factory=threading.Lock)
    columns = ()

    def reset(self, example, rng):
        return 0, ()

    def step(self, state, turn, rng):
        assert self.busy.acquire(blocking=False), "two threads ask"
        try:
            drawn = int(rng.integers(1000))
        finally:
            self.busy.release()
        said = {"role": "user", "content": f"{turn.text} {drawn}"}
        return Step(state=state + drawn, messages=(said,), reward=float(drawn), done=turn.text == "three")


def ids(text):
    return [*Letters().encode(text), EOS]


def test_threads_read_what_rounds_read():
    together, apart = (begin(interaction=Draws(), samples=ROWS) for _ in range(2))
    rows = list(range(ROWS))
    said = [together.then(rows, [ids(text)] * ROWS, ["eos"] * ROWS) for text in SCRIPT]
    with ThreadPoolExecutor(ROWS) as threads:
        found = list(threads.map(lambda row: [apart.alone(row, ids(text), "eos") for text in SCRIPT], rows))
    assert found == [list(each) for each in zip(*said, strict=True)]
    for field in attrs.fields(type(together.result([False] * ROWS))):
        here, there = (getattr(each.result([False] * ROWS), field.name) for each in (together, apart))
        if isinstance(here, np.ndarray):
            np.testing.assert_array_equal(here, there, err_msg=field.name)
        else:
            assert here == there


def meeting(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: the first.
        b: the other.
    """
    return a + b


def test_tools_in_this_process_are_called_by_one_thread_at_a_time():
    busy = threading.Lock()

    def alone(a: int, b: int) -> int:
        assert busy.acquire(blocking=False), "two threads call it"
        try:
            return a + b
        finally:
            busy.release()

    running = begin(tools=(Tool(name="add", function=alone, target=meeting),), samples=ROWS, processes=0)
    with ThreadPoolExecutor(ROWS) as threads:
        said = list(threads.map(lambda row: running.alone(row, ids(ADD), "eos"), range(ROWS)))
    assert [Letters().decode(each) for each in said] == ["[tool:3]"] * ROWS


class Alone:
    """An environment with a tool, of which only one thread at a time may ask anything."""

    columns = ()

    def __init__(self):
        self.busy = threading.Lock()

    def reset(self, example, rng):
        return 0, ()

    def tools(self):
        schema = {"description": "Wait.", "parameters": {"properties": {"a": {"type": "integer"}, "b": {}}}}
        return [Tool(name="add", function=self.waits, target=Alone.waits, schema=schema)]

    def waits(self, state, a, b):
        return Result(self.said(), state=state)

    def step(self, state, turn, rng):
        return Step(state=state, messages=({"role": "user", "content": self.said()},))

    def said(self):
        assert self.busy.acquire(blocking=False), "two threads ask it"
        time.sleep(0.01)
        self.busy.release()
        return "done"


@pytest.mark.parametrize("record", [False, True])
def test_an_environment_and_its_tools_are_called_by_one_thread_at_a_time(tmp_path, record):
    loop = ToolAgent(max_turns=ROWS).open(Letters(), Alone(), (), Hermes())
    generators = Generators(np.arange(ROWS * 2, dtype=np.uint32).reshape(1, ROWS, 2))
    running = (loop.recording(tmp_path) if record else loop).begin(({"prompt": "?"},), ROWS, generators)
    said = [ADD if row % 2 else "I wait." for row in range(ROWS)]
    with ThreadPoolExecutor(ROWS) as threads:
        found = list(threads.map(lambda row: running.alone(row, ids(said[row]), "eos"), range(ROWS)))
    assert all(each and "done" in Letters().decode(each) for each in found), [
        episode.end for episode in running.episodes
    ]


def test_a_call_that_does_not_end_holds_up_no_other_episode(monkeypatch):
    """The tools of one episode are at work while another is answered, and its environment too."""
    other = threading.Event()
    slow = Toolbox._side_by_side

    def waits(self, asked, *more):
        if asked and asked[0][0].arguments["a"] == 1:
            assert other.wait(PATIENCE), "the others wait"
        return slow(self, asked, *more)

    monkeypatch.setattr(Toolbox, "_side_by_side", waits)
    running = begin(interaction=Draws(), samples=3)
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(running.alone, 0, ids(ADD), "eos")
        assert running.alone(1, ids(ADD.replace("1", "5")), "eos") is not None
        assert running.alone(2, ids("one"), "eos") is not None
        other.set()
        assert Letters().decode(first.result()) == "[tool:3]"


def test_results_of_threads_are_all_recorded(tmp_path):
    tool = Tool(name="add", function=meeting, target=meeting)
    generators = Generators(np.arange(ROWS * 2, dtype=np.uint32).reshape(1, ROWS, 2))
    loop = ToolAgent(processes=0).open(Letters(), None, (tool,), Hermes())

    def play(only):
        running = loop.recording(tmp_path, only=only).begin(({"prompt": "?"},), ROWS, generators)
        with ThreadPoolExecutor(ROWS) as threads:
            calls = [ADD.replace("1", str(row)) for row in range(ROWS)]
            return list(threads.map(lambda row: running.alone(row, ids(calls[row]), "eos"), range(ROWS)))

    said = play(only=False)
    assert len((tmp_path / FILE).read_bytes().splitlines()) == ROWS
    assert play(only=True) == said


def broken(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: the first.
        b: the other.
    """
    raise RunError("the disk is gone")


def test_a_tool_that_ends_the_run_does_so_from_a_thread():
    running = begin(tools=(Tool(name="add", function=broken, target=broken),), samples=2)
    with ThreadPoolExecutor(2) as threads:
        found = [threads.submit(running.alone, row, ids(ADD), "eos").exception() for row in range(2)]
    assert [str(error) for error in found] == ["the disk is gone"] * 2


class Own:
    """A tool that has a process of its own for each call, as it says; two calls wait for each other."""

    declares = MappingProxyType({"own_process": True})

    def __init__(self, parties):
        self.together = threading.Barrier(parties)
        self.now, self.most, self.lock = 0, 0, threading.Lock()

    def __call__(self, a: int, b: int) -> int:
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
        self.together.wait(PATIENCE)
        with self.lock:
            self.now -= 1
        return a + b


def own(parties):
    made = Own(parties)
    return made, Tool(name="add", function=made, target=Own)


def test_calls_of_a_tool_with_its_own_processes_run_side_by_side_up_to_the_cores(monkeypatch):
    monkeypatch.setattr("dovetail_agent.agent_loop._toolbox.cores", lambda: 2)
    made, tool = own(2)
    running = begin(tools=(tool,), samples=ROWS)
    calls = [ids(ADD.replace("1", str(row))) for row in range(ROWS)]
    said = running.then(list(range(ROWS)), calls, ["eos"] * ROWS)
    assert [Letters().decode(each) for each in said] == [f"[tool:{row + 2}]" for row in range(ROWS)]
    assert made.most == 2
    made, tool = own(2)
    running = begin(tools=(tool,), samples=ROWS)
    with ThreadPoolExecutor(ROWS) as threads:  # also where episodes are answered one by one
        assert list(threads.map(lambda row: running.alone(row, calls[row], "eos"), range(ROWS))) == said
    assert made.most == 2


def test_no_processes_at_all_is_one_call_after_another():
    made, tool = own(1)
    running = begin(tools=(tool,), samples=ROWS, processes=0)
    with ThreadPoolExecutor(ROWS) as threads:
        list(threads.map(lambda row: running.alone(row, ids(ADD), "eos"), range(ROWS)))
    assert made.most == 1


def test_python_has_a_process_for_each_call():
    from dovetail_agent.tool.python import Python

    assert Python.declares["own_process"]
