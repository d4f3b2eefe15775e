"""Processes that work under a time limit."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import time

import pytest

from dovetail_kit.workers import LATE, LOST, CallError, Workers, cores

LONG = 600
"""Seconds for calls that are to end by themselves, also on a machine that has stood still for a while."""
POW = functools.partial(getattr, int, "__pow__")


def identity():
    return lambda x: x


def sleep():
    return time.sleep


def end():
    return os._exit


def loud():
    return print


def louder():
    return say


def say(text):
    for stream in sys.stdout, sys.stderr:
        print(text * 10_000, file=stream, flush=True)
    return text


def process_id():
    return os.getpid


def broken():
    raise AttributeError("no such function")


def test_results_come_in_order_from_several_processes():
    with Workers(sleep, processes=2) as workers:
        assert workers.map([(0.2,), (0.0,), (0.1,)], time_limit=LONG) == [None, None, None]
    with Workers(POW, processes=3) as workers:
        assert workers.map([(2, i) for i in range(20)], time_limit=LONG) == [2**i for i in range(20)]
        assert workers.map([], time_limit=LONG) == []


def test_by_default_there_is_one_for_each_core_and_few_calls_start_few(monkeypatch):
    monkeypatch.setattr("dovetail_kit.workers.cores", lambda: 5)
    with Workers(POW, processes=None) as workers:
        assert len(workers._workers) == 5
        for _ in range(3):
            assert workers.map([(2, 2), (2, 3)], time_limit=LONG) == [4, 8]
        assert sum(each.process is not None for each in workers._workers) <= 2


def test_the_cores_are_those_of_this_process(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 3, 5}, raising=False)
    assert cores() == 3
    monkeypatch.delattr("os.sched_getaffinity")
    monkeypatch.setattr("os.cpu_count", lambda: None)
    assert cores() == 1


def test_a_late_call_ends_by_itself_and_the_next_is_served():
    with Workers(POW, processes=1) as workers:
        assert workers.map([(9, 9**9), (9, 9**9)], time_limit=0.5) == [LATE, LATE]
        assert workers.map([(2, 2), (2, 3)], time_limit=LONG) == [4, 8]


def test_calls_that_have_not_begun_are_not_made_once_one_ends_all(tmp_path):
    with Workers(notes, processes=1) as workers:
        calls = [(tmp_path / f"{number}", 0.0 if number < 2 else 1.0) for number in range(100)]
        assert workers.map(calls, time_limit=LONG, until=lambda result: result == "1") == ["0", "1"]
    assert len(list(tmp_path.iterdir())) < 100


def note(path, seconds):
    path.touch()
    time.sleep(seconds)
    return path.name


def notes():
    return note


def test_a_process_that_dies_is_late():
    with Workers(end, processes=1) as workers:
        assert workers.map([(1,), (0,)], time_limit=LONG) == [LATE, LATE]


def end_once(note):
    if not note.exists():
        note.touch()
        os._exit(1)
    return "done"


def ends_once():
    return end_once


def test_a_call_whose_process_dies_is_tried_again(tmp_path):
    with Workers(ends_once, processes=1, retries=1) as workers:
        assert workers.map([(tmp_path / "note",)], time_limit=LONG) == ["done"]
    with Workers(end, processes=1, retries=1) as workers:
        assert workers.map([(1,)], time_limit=LONG) == [LOST]
    with Workers(sleep, processes=1, retries=1) as workers:
        assert workers.map([(600,)], time_limit=0.5) == [LATE]


def test_a_process_that_was_ended_in_between_is_replaced():
    with Workers(process_id, processes=1) as workers:
        (first,) = workers.map([()], time_limit=LONG)
        os.kill(first, signal.SIGKILL)
        os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)  # a process ends some time after its signal
        (second,) = workers.map([()], time_limit=LONG)
        assert second not in (first, LATE)


def test_large_texts_pass():
    with Workers(identity, processes=1) as workers:
        assert workers.map([("x" * 3_000_000,)], time_limit=LONG) == ["x" * 3_000_000]


def test_what_the_function_prints_does_not_reach_the_answers():
    with Workers(loud, processes=1) as workers:
        assert workers.map([("loud",)], time_limit=LONG) == [None]


@pytest.mark.parametrize("redirected", ["2> >(true)", "2>&-", ">&- 2>&- <&-"])
def test_a_function_may_print_to_a_stream_that_nobody_reads(redirected, tmp_path):
    """Its reader may be gone, or the stream closed; then the next file must not take its place."""
    program = tmp_path / "program.py"
    program.write_text(
        "import sys\n"
        "from dovetail_kit.workers import Workers\n"
        "from tests.kit.test_workers import louder\n"
        "kept = open('kept', 'w')\n"
        "with Workers(louder, processes=1) as workers:\n"
        "    kept.write(str(workers.map([('loud',), ('louder',)], time_limit=600)))\n"
    )
    line = f"exec {sys.executable} {program} {redirected}"
    subprocess.run(["bash", "-c", line], cwd=tmp_path, env=os.environ | {"PYTHONPATH": os.getcwd()}, check=True)
    assert (tmp_path / "kept").read_text() == "['loud', 'louder']"


def test_errors_are_told():
    with Workers(POW, processes=1) as workers, pytest.raises(CallError, match="TypeError: +expected at most 2"):
        workers.map([(1, 2, 3, 4)], time_limit=LONG)
    with Workers(broken, processes=1) as workers:
        for _ in range(2):
            with pytest.raises(CallError, match="AttributeError: no such function"):
                workers.map([(1,)], time_limit=LONG)
    with Workers(functools.partial(os._exit, 1), processes=1) as workers, pytest.raises(CallError, match="its process"):
        workers.map([(1,)], time_limit=LONG)


@pytest.mark.parametrize("time_limit", [0.0, -1.0, float("nan"), float("inf")])
def test_a_time_limit_that_is_none(time_limit):
    with Workers(POW, processes=1) as workers, pytest.raises(ValueError, match="time_limit is"):
        workers.map([(1, 2)], time_limit=time_limit)


def test_closing_twice_and_using_again():
    workers = Workers(POW, processes=1)
    workers.close()
    assert workers.map([(2, 3)], time_limit=LONG) == [8]
    workers.close()
    workers.close()
    assert workers.map([(2, 3)], time_limit=LONG) == [8]
    workers.close()


def test_a_program_ends_with_its_workers():
    program = (
        "from dovetail_kit.workers import workers\n"
        "from tests.kit.test_workers import process_id\n"
        "pool = workers(process_id, 1)\n"
        "print(pool.map([()], time_limit=600)[0])"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stderr == ""
    with pytest.raises(ProcessLookupError):
        os.kill(int(done.stdout), 0)


def start_another(note, seconds):
    """Start a process that outlives this one, and write its id to a file."""
    note.write_text(str(subprocess.Popen(["sleep", "600"]).pid))
    time.sleep(seconds)


def starts_another():
    return start_another


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="it looks at /proc")
@pytest.mark.parametrize("seconds", [600, 0])
def test_what_a_call_has_started_ends_with_its_process(tmp_path, seconds):
    """This holds if a call exceeds its time limit, and if its workers are closed."""
    note, time_limit = tmp_path / "pid", 1.0 if seconds else LONG
    with Workers(starts_another, processes=1) as workers:
        while not (note.exists() and note.read_text()):  # on a busy machine it may take more than that to get there
            workers.map([(note, seconds)], time_limit=time_limit)
            time_limit *= 2
    while is_running(int(note.read_text())):
        time.sleep(0.01)


@pytest.mark.skipif(sys.platform != "linux", reason="it looks at /proc")
def test_a_program_that_is_killed_takes_its_workers_and_what_they_run_with_it(tmp_path):
    program = (
        "from pathlib import Path\n"
        "from dovetail_kit.workers import workers\n"
        "from tests.kit.test_workers import starts_another\n"
        f"workers(starts_another, 1).map([(Path({str(tmp_path / 'pid')!r}), 600)], time_limit=3600)"
    )
    with subprocess.Popen([sys.executable, "-c", program]) as started:
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            assert started.poll() is None
            time.sleep(0.01)
        started.kill()
    while is_running(int((tmp_path / "pid").read_text())):
        time.sleep(0.01)
