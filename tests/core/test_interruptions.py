"""A signal that comes where Python drops exceptions still ends a run, at its next step."""

import gc
import signal
import sys
import threading
from types import SimpleNamespace
from typing import cast

import pytest
from tests.core.training.tiny import TINY

import dovetail
from dovetail.cli import main
from dovetail.config import load
from dovetail.interruptions import interruptions, stop_if_asked
from dovetail.training.learner import Learner


class _Dropped:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)


class _Broken:
    def __del__(self):
        raise ValueError


def _while_rubbish_is_collected(phase, info):
    if phase == "start":
        signal.raise_signal(signal.SIGINT)


def _collect():
    gc.callbacks.append(_while_rubbish_is_collected)
    try:
        gc.collect()
    finally:
        gc.callbacks.remove(_while_rubbish_is_collected)


@pytest.fixture
def printed(monkeypatch):
    """What Python could only print."""
    found = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: found.append(unraisable.exc_type))
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        pytest.skip("SIGINT is ignored, as in the background of a script")
    return found


def test_a_hook_that_came_later_stays(printed):
    """That of the checkpoints silences threads that fail as the process ends, which is after this."""
    mine = sys.unraisablehook
    with interruptions():
        pass
    assert sys.unraisablehook is mine
    later = []
    with interruptions():
        sys.unraisablehook = later.append
    _Broken()
    assert (len(later), printed) == (1, [])


@pytest.mark.parametrize("lose", [_Dropped, _collect])
def test_a_lost_interrupt_is_raised_where_it_cannot_be_lost(lose, printed):
    with interruptions() as came:
        stop_if_asked()
        _Broken()
        lose()
        assert (printed, came) == ([ValueError], [signal.SIGINT])
        with interruptions(), pytest.raises(KeyboardInterrupt):
            stop_if_asked()
        with pytest.raises(KeyboardInterrupt):
            stop_if_asked()
    stop_if_asked()


def test_a_signal_whose_handler_is_just_being_replaced_is_dropped_without_a_traceback(printed):
    """Python tells of it as of any exception that it cannot raise, and only when both happen within a microsecond."""
    with interruptions():
        for message in ("Signal 1 ignored due to race condition", "No space left on device"):
            dropped = SimpleNamespace(exc_type=OSError, exc_value=OSError(message), exc_traceback=None, object=None)
            sys.unraisablehook(cast("sys.UnraisableHookArgs", dropped))
    assert printed == [OSError]


LONG = (*TINY, "sft.steps=0", "train.steps=100", "eval.every=None")


@pytest.fixture
def interrupts(monkeypatch, number):
    """In the second step a signal comes when the update has taken over the memory of the old parameters."""
    if signal.getsignal(number) is signal.SIG_IGN:
        pytest.skip("the signal is ignored, as in the background of a script")
    update = Learner._update

    def interrupted(self, batch, moment, step):
        if step == 1:
            signal.raise_signal(number)
        return update(self, batch, moment, step)

    monkeypatch.setattr(Learner, "_update", interrupted)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_the_midst_of_a_step_ends_the_run_after_it_with_its_state_saved(
    number, interrupts, tmp_path, capsys
):
    sets = [part for override in LONG for part in ("--set", override)]
    (tmp_path / "a.gin").touch()
    status = main(["train", str(tmp_path / "a.gin"), "--folder", str(tmp_path / "run"), *sets])
    assert status == 128 + number
    assert capsys.readouterr().err.endswith("stopped; run the same command again to go on\n")
    assert (tmp_path / "run" / "metrics.jsonl").read_text().count("\n") == 2
    assert (tmp_path / "run" / "checkpoints" / "steps" / "2").is_dir()


@pytest.mark.parametrize("number", [signal.SIGINT])
def test_it_does_so_in_python(number, interrupts, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        dovetail.train(load(None, LONG), tmp_path)
    assert (tmp_path / "checkpoints" / "steps" / "2").is_dir()
    assert signal.getsignal(number) is signal.default_int_handler


@pytest.mark.parametrize("number", [signal.SIGINT])
def test_a_handler_of_somebody_else_stays(number, interrupts, tmp_path):
    came = []
    signal.signal(number, lambda *_: came.append(number))
    try:
        dovetail.train(load(None, [*LONG, "train.steps=2"]), tmp_path)
    finally:
        signal.signal(number, signal.default_int_handler)
    assert came == [number]


@pytest.mark.parametrize("number", [signal.SIGINT])
def test_a_run_in_a_thread_leaves_signals_alone(number, tmp_path):
    hook, config = sys.unraisablehook, load(None, [*LONG, "train.steps=1"])
    found = []
    thread = threading.Thread(target=lambda: found.append(dovetail.train(config, tmp_path)))
    thread.start()
    thread.join()
    assert found
    assert (signal.getsignal(number), sys.unraisablehook) == (signal.default_int_handler, hook)
