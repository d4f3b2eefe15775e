"""`dovetail train --profile`: the steps of a window, in a trace that other programs open."""

import pytest
from tests.core.training.tiny import TINY

from dovetail.cli import main
from dovetail.errors import ConfigError
from dovetail_lab.cli.profile import Window

OVERRIDES = [word for override in TINY for word in ("--set", override)]


@pytest.mark.slow
def test_the_trace_of_a_step_can_be_opened(tmp_path, capsys):
    folder = tmp_path / "run"
    short = ("--set", "sft.steps=3", "--set", "train.steps=3")
    assert main(["train", *OVERRIDES, *short, "--folder", str(folder), "--profile", "steps=2"]) == 0
    assert f"profile      {folder / 'profile'}: open the .trace.json.gz" in capsys.readouterr().out
    found = [path.suffixes for path in (folder / "profile").rglob("*") if path.is_file()]
    assert [".xplane", ".pb"] in [suffixes[-2:] for suffixes in found]
    assert [".json", ".gz"] in [suffixes[-2:] for suffixes in found]


@pytest.mark.parametrize("text", ["5:7", "steps=7:5", "steps=0:2", "steps=a", "step=1", ""])
def test_a_window_that_cannot_be_read(text):
    with pytest.raises(ConfigError, match=r"write --profile steps=5:7, counted from 1"):
        Window.parse(text)


def test_a_window_beyond_the_run_is_refused_at_once(tmp_path, capsys):
    assert main(["train", *OVERRIDES, "--folder", str(tmp_path / "run"), "--profile", "steps=9"]) == 1
    assert "--profile steps=9:9 begins after train.steps = 4" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_one_step_may_be_traced():
    assert Window.parse("steps=3") == Window(3, 3)
