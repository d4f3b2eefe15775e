"""A signal that comes where Python drops exceptions still ends a run, at its next step."""

import gc
import signal
import sys

import pytest
from tests.core.train.tiny import TINY

from dovetail.cli import main
from dovetail.hookspecs import hookimpl
from dovetail.interruptions import interruptions, stop_if_asked
from dovetail.registry import plugin_manager


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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_the_midst_of_a_step_ends_the_run_after_it_with_its_state_saved(number, tmp_path, capsys):
    """The memory of the old parameters is taken over by then, and the new ones are not remembered yet."""
    if signal.getsignal(number) is signal.SIG_IGN:
        pytest.skip("the signal is ignored, as in the background of a script")

    class Interrupts:
        @hookimpl
        def dovetail_step_end(self, phase, step):
            if (phase, step) == ("rl", 2):
                signal.raise_signal(number)

    sets = [
        part
        for override in (*TINY, "sft.steps=0", "train.steps=100", "eval.every=None")
        for part in ("--set", override)
    ]
    (tmp_path / "a.gin").touch()
    observer = Interrupts()
    plugin_manager().register(observer)
    try:
        status = main(["train", str(tmp_path / "a.gin"), "--folder", str(tmp_path / "run"), *sets])
    finally:
        plugin_manager().unregister(observer)
    assert status == 128 + number
    assert capsys.readouterr().err.endswith("stopped; run the same command again to go on\n")
    assert (tmp_path / "run" / "metrics.jsonl").read_text().count("\n") == 2
    assert (tmp_path / "run" / "checkpoints" / "steps" / "2").is_dir()
