"""Rewards that return anything but a list of numbers, raise, or modify inputs: errors name the reward and sample."""

import itertools
import math
import os
import re
import signal
import sys
import threading

import numpy as np
import pytest
from tests.core.host.test_rewards import EXAMPLES, scorer
from tests.core.training.tiny import TINY
from tests.executor.pool import cases
from tests.hostile.case import attempt_call

from dovetail.config import load
from dovetail.errors import ConfigError, DovetailWarning, RewardError
from dovetail.host import slow
from dovetail.protocols import Completions
from dovetail.training.columns import make_scorer
from dovetail_executor.pool.processes import Processes
from dovetail_reward.reward.compute_score import ComputeScore
from dovetail_reward.reward.functions import Functions

COMPLETIONS = ["2", "4"]


def returning(value):
    """Return a reward that always returns `value`."""

    def mine(completions):
        return value

    return mine


def raising(error):
    def mine(completions):
        raise error

    return mine


def leaving(completions):
    sys.exit(3)


def unprintable(completions):
    class Odd(Exception):
        def __str__(self):
            raise RuntimeError("not even a message")

    raise Odd


CASES = {
    "None": (
        returning(None),
        "reward mine .* returned None, as a function without `return` does; return a list with a",
    ),
    "a number": (returning(1.0), "reward mine .* returned 1.0; return a list with a number for each completion"),
    "too few": (returning([1.0]), "reward mine returned 1 scores for 2 completions"),
    "too many": (returning([1.0] * 3), "reward mine returned more than 2 scores"),
    "none at all": (returning([]), "reward mine returned 0 scores"),
    "scores without end": (returning(itertools.repeat(1.0)), "reward mine returned more than 2 scores"),
    "NaN": (returning([1.0, math.nan]), "reward mine gave nan to sample 1"),
    "infinity": (returning([-math.inf, 1.0]), "reward mine gave -inf to sample 0"),
    "beyond float64": (returning([10**400, 1.0]), "reward mine gave 1000.* to sample 0"),
    "a square beyond float32": (returning([1.0, -1e20]), r"gave -1e\+20 to sample 1.* of at most 1e\+18, or None"),
    "a word": (returning(["good", 1.0]), "reward mine gave 'good' to sample 0"),
    "a number as text": (returning(["1.0", 1.0]), "reward mine gave '1.0' to sample 0"),
    "text for a list": (returning("10"), "reward mine .*'10'"),
    "a dict for a list": (returning({"a": 1.0, "b": 2.0}), r"reward mine .* returned \{.a.: 1"),
    "a set for a list": (returning({1.0, 2.0}), r"reward mine .* returned \{1\.0"),
    "a complex number": (returning([1j, 1.0]), "reward mine gave 1j to sample 0"),
    "a list in a list": (returning([[1.0], [1.0]]), r"reward mine gave \[1\.0\] to sample 0"),
    "a table": (returning(np.ones((2, 3))), "reward mine gave"),
    "metrics that are words": (returning(([1.0, 1.0], {"m": "x"})), "metric mine/m of a reward is \"'x'\""),
    "metrics of a wrong length": (returning(([1.0, 1.0], {"m": [1, 2, 3]})), "metric mine/m"),
    "an exception": (raising(KeyError("x")), "reward mine .*raised KeyError: 'x'; first completion: '2'"),
    "an exception of two lines": (raising(ValueError("a\nb")), r"reward mine .*raised ValueError: a b"),
    "an exception in colour": (raising(ValueError("\x1b[31m")), r"reward mine .*raised ValueError: \\x1b"),
    "an exception without a message": (unprintable, "reward unprintable .*raised Odd"),
    "an exit": (raising(SystemExit(0)), "reward mine .*raised SystemExit"),
    "an exit by sys": (leaving, "raised SystemExit"),
    "no end of recursion": (raising(RecursionError("deep")), "reward mine .*raised RecursionError"),
    "no memory": (raising(MemoryError()), "reward mine .*raised MemoryError"),
}


@pytest.mark.parametrize(("function", "pattern"), CASES.values(), ids=CASES)
def test_a_reward(function, pattern):
    attempt_call(lambda: scorer(function)(EXAMPLES, COMPLETIONS), RewardError, pattern)


OWN = {
    "too few": ("return [1.0]", "f returned 1 scores for 2"),
    "too many": ("return [1.0] * 3", "f returned more than 2 scores"),
    "scores without end": ("import itertools; return itertools.repeat(1.0)", "f returned more than 2 scores"),
    "a number as text": ("return ['1.0', 1.0]", "f gave '1.0'"),
    "text for a list": ("return '10'", "f returned '10'; return a list"),
    "complex numbers": ("return [1j, 1.0]", "f gave 1j, which is not a number: TypeError: "),
    "rows for numbers": ("import numpy; return numpy.zeros((2, 2))", "f gave .*, which is not a number: TypeError: "),
    "beyond float64": ("return [10**400, 1.0]", "f gave 1000.*, which is not a number: OverflowError: "),
    "a dict for a list": ("return {'a': 1.0, 'b': 2.0}", "f returned {'a': 1.0, 'b': 2.0}; return a list"),
}


@pytest.mark.parametrize(("body", "pattern"), OWN.values(), ids=OWN)
def test_a_reward_from_a_file(body, pattern, tmp_path):
    file = tmp_path / "own.py"
    file.write_text(f"def f(completions, **others): {body}\ndef g(data_sources, **others): {body}\n")
    asked = (COMPLETIONS, ["a", "b"], [{"answer": "2"}] * 2, [[1], [2]])
    with pytest.raises(RewardError, match=pattern):
        Functions(path=str(file), name="f")(*asked)
    columns = {"data_source_column": None, "ground_truth_column": "answer", "extra_info_column": None}
    batched = ComputeScore(path=str(file), name="g", batched=True, **columns)
    with pytest.raises(
        (TypeError, ValueError), match=pattern.replace("f returned", "g returned").replace("f gave", "gave")
    ):
        batched(COMPLETIONS, [{"answer": "2"}] * 2)


@pytest.mark.parametrize("name", ["of_trl", "of_verl", "of_verl_in_batches"])
def test_what_a_function_does_to_the_process_is_undone(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "own.py"
    path.write_text(
        "import os, signal\ndef spoil():\n    os.chdir('/')\n    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "def of_trl(completions):\n    spoil()\n    return [0.0, 0.0]\n"
        "def of_verl(data_source, solution_str, ground_truth, extra_info):\n    spoil()\n    return 0.0\n"
        "def of_verl_in_batches(data_sources, solution_strs, ground_truths, extra_infos):\n    return of_trl([])\n"
    )
    before = signal.getsignal(signal.SIGTERM)
    columns = {"data_source_column": None, "ground_truth_column": None, "extra_info_column": None}

    def score():
        if name == "of_trl":
            return Functions(path=str(path), name=name)(COMPLETIONS, ["a", "b"], [{}, {}], [[1], [2]])
        return ComputeScore(path=str(path), name=name, batched="batches" in name, **columns)(COMPLETIONS, [{}, {}])

    said = rf"own\.py: {name}: while it was called it changed the working folder, .*SIGTERM"
    with pytest.warns(DovetailWarning, match=said):
        score()
    assert os.getcwd() == str(tmp_path)
    assert signal.getsignal(signal.SIGTERM) == before


def test_functions_of_a_file_do_not_share_lists(tmp_path):
    (tmp_path / "own.py").write_text(
        "def f(completions):\n    completions.clear()\n    return [0.0, 0.0]\n"
        "def g(completions):\n    return [float(len(completion)) for completion in completions]\n"
    )
    reward = Functions(path=str(tmp_path / "own.py"), name=("f", "g"))
    assert reward(COMPLETIONS, ["a", "b"], [{}, {}], [[1], [2]])[0] == [1.0, 1.0]


@pytest.mark.parametrize("text", ["import sys\nsys.exit(0)\n", "def (:\n", "1 / 0\n", "import no_such_module_here\n"])
def test_a_file_of_rewards_that_cannot_be_run(text, tmp_path):
    (tmp_path / "own.py").write_text(text)
    attempt_call(lambda: Functions(path=str(tmp_path / "own.py"), name="f"), ConfigError, r"own\.py cannot be run: ")


def test_a_reward_that_empties_what_it_is_given_takes_nothing_from_the_next():
    def meddling(completions):
        completions.clear()
        return [0.0, 0.0]

    def length(completions):
        return [float(len(completion)) for completion in completions]

    assert scorer(meddling, length)(EXAMPLES, COMPLETIONS).total.tolist() == [1.0, 1.0]


def test_a_reward_that_is_interrupted_is_an_interruption():
    with pytest.raises(KeyboardInterrupt):
        scorer(raising(KeyboardInterrupt()))(EXAMPLES, COMPLETIONS)


SLEEPS = """import asyncio; from dovetail.host import slow
def f(completions):
    slow.begun.set() or slow.told.wait(120)
    return [0.0, 1.0]
async def g(completions):
    slow.begun.set()
    while not slow.told.is_set():
        await asyncio.sleep(0.01)
    return [0.0, 1.0]
"""


@pytest.mark.parametrize("name", ["f", "g"])
def test_a_reward_that_sleeps_is_named_while_the_run_waits(name, tmp_path, monkeypatch):
    (tmp_path / "own.py").write_text(SLEEPS)
    sets = [f"reward.functions.path='{tmp_path}/own.py'", f"reward.functions.name='{name}'"]
    config = load(None, [*TINY, *sets, "train.rewards=['functions']", "eval.success=functions"])
    scores = make_scorer(config)
    tell, begun, told_it = slow._tell, threading.Event(), threading.Event()
    monkeypatch.setattr(slow, "begun", begun, raising=False)
    monkeypatch.setattr(slow, "told", told_it, raising=False)
    monkeypatch.setattr(slow, "_tell", lambda *about: (begun.wait(120), tell(*about), told_it.set()))
    monkeypatch.setattr(slow, "SLOW_SECONDS", 0.1)
    monkeypatch.setattr(slow, "_TOLD", set())
    said = (
        r"reward functions of '.*own\.py' has not returned for 0\.1 s, and nothing ends it \[.*:\d+\]; in a pool of"
        r" workers \(reward\.functions\.pool\) its calls have a time limit"
    )
    drawn = Completions(
        tokens=np.ones((2, 1), np.int32),
        mask=np.ones((2, 1), bool),
        logps=np.zeros((2, 1), np.float32),
        finish=np.zeros(2, np.int8),
        versions=np.zeros(2, np.int32),
    )
    with pytest.warns(DovetailWarning, match=said) as told:
        found = [scores(EXAMPLES, COMPLETIONS, drawn).total.tolist() for _ in range(2)]
    assert found == [[0.0, 1.0]] * 2
    assert len(told) == 1
    assert name == "g" or re.search(r"own\.py:3\]", str(told[0].message))


def test_a_reward_that_sleeps_in_a_pool_ends_the_run_after_the_time_of_one_call():
    reward = cases.component(cases.obey).bind(pool=Processes(workers=1, seconds=0.5))
    with pytest.raises(RewardError, match="reward obey took longer than 0.5 s on the completion 'sleep'"):
        reward(["sleep"] * 1000)
