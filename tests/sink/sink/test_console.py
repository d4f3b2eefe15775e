import json
import os
import pty
import re
import subprocess
import sys
from io import StringIO

import pytest
from rich.console import Console as Terminal

from dovetail.progress import Doing
from dovetail_sink._live import LiveView
from dovetail_sink.sink.console import Console, title

RL = {
    "reward/mean": 1.25,
    "kl/mean": 0.0125,
    "completion/length_mean": 23.5,
    "time/tokens_per_second": 4321.0,
    "time/step": 2.5,
    "policy_loss/ratio_mean": 1.0,
}
EVALUATION = {"eval/accuracy": 0.4375, "eval/length_mean": 20.0, "time/step": 1.0}
SFT = {"sft/loss": 2.5, "sft/grad_norm": 1.0}

SCRIPT = """
import sys
from pathlib import Path
from dovetail_sink.sink.console import Console
sink = Console().open(Path("runs/x"), 10, 0)
sink.write(1, {"reward/mean": 0.5})
sink.close()
"""


def view(width=100, height=30, **changes):
    """A live view on a terminal made of text, and a function that returns its last frame."""
    screen = StringIO()
    terminal = Terminal(file=screen, force_terminal=True, color_system=None, width=width, height=height)
    live = LiveView(terminal, "runs/x  config abc", **{"total_steps": 10, "start_step": 0, "rows": 4} | changes)

    def frame():
        live.close()
        text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen.getvalue())
        return text[text.rindex("runs/x") :]

    return live, frame


def test_text_is_one_parseable_line_per_record(tmp_path, capsys):
    sink = Console().open(tmp_path, 10, 0)
    sink.write(2, SFT)
    sink.write(0, EVALUATION)
    sink.write(1, RL)
    sink.close()
    lines = [dict(field.split("=") for field in line.split(" ")) for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        {"phase": "sft", "step": "2", "loss": "2.5"},
        {"phase": "eval", "step": "0", "total": "10", "accuracy": "0.4375", "s/step": "1"},
        {
            "phase": "rl",
            "step": "1",
            "total": "10",
            "reward": "1.25",
            "KL": "0.0125",
            "length": "23.5",
            "tok/s": "4321",
            "s/step": "2.5",
        },
    ]


def test_a_record_without_known_figures_is_a_line_too(tmp_path, capsys):
    Console().open(tmp_path, 10, 0).write(3, {"reward/mean": float("nan"), "mine": 1.0})
    assert capsys.readouterr().out == "phase=rl step=3 total=10 reward=nan\n"


@pytest.fixture
def notebook(monkeypatch):
    """What rich takes for Jupyter."""
    shell = type("ZMQInteractiveShell", (), {})
    monkeypatch.setattr("builtins.get_ipython", shell, raising=False)
    monkeypatch.setenv("JUPYTER_COLUMNS", "50")


def test_a_notebook_has_a_row_for_each_step_and_nothing_on_stderr(tmp_path, capsys, notebook):
    sink = Console().open(tmp_path, 10, 0)
    sink.tell(Doing("loading"))
    sink.write(1, SFT)
    sink.write(0, EVALUATION)
    for step in (1, 2):
        sink.tell(Doing("sampling"))
        sink.write(step, RL | ({"staleness/mean": 1.0} if step == 2 else {}))
    sink.write(3, RL)
    sink.close()
    shown = capsys.readouterr()
    assert shown.out.splitlines() == [
        "step         loss",
        "sft 1      2.5000",
        "evaluation at step 0: accuracy 43.8%",
        "step       reward       KL   length    tok/s",
        "rl 1/10     1.250   0.0125     23.5    4,321",
        "step       reward       KL   length    stale",
        "rl 2/10     1.250   0.0125     23.5      1.0",
        "rl 3/10     1.250   0.0125     23.5",
    ]
    assert shown.err == ""


def test_the_title_names_the_config(tmp_path):
    assert title(tmp_path) == str(tmp_path)
    (tmp_path / "run.json").write_text(json.dumps({"config_id": "1a2b", "run_id": "1a2b-s0"}))
    assert title(tmp_path) == f"{tmp_path}  config 1a2b"


def test_the_live_view_shows_what_has_been_seen_and_no_other_column():
    live, frame = view()
    live.write(3, RL)
    shown = frame()
    assert "rl 3/10" in shown
    assert re.search(r"step +reward +KL +length +tok/s +s/step", shown)
    assert re.search(r"3 +1\.250 +0\.0125 +23\.5 +4,321 +2\.50", shown)
    assert not re.search("accuracy|entropy|loss", shown)


def test_evaluations_have_rows_of_their_own_and_a_summary():
    live, frame = view()
    for step, accuracy in ((0, 0.1), (5, 0.5), (10, 0.4)):
        live.write(step, EVALUATION | {"eval/accuracy": accuracy})
        live.write(step, RL)
    shown = frame()
    assert "accuracy 40.0% at step 10, best 50.0% at step 5, began with 10.0% at step 0" in shown
    assert re.search(r"\n +10 +40\.0% ", shown)


def test_the_warm_start_has_its_own_table_and_leaves_with_its_phase():
    live, frame = view()
    live.write(7, SFT)
    live.write(1, RL)
    shown = frame()
    assert "loss" not in shown
    assert not re.search(r"^ +7 ", shown, flags=re.MULTILINE)
    live, frame = view()
    live.write(7, SFT)
    shown = frame()
    assert "sft step 7" in shown
    assert re.search(r"step +loss", shown)


@pytest.mark.parametrize(("rows", "height", "first"), [(4, 30, 17), (100, 14, 15), (100, 9, 20)])
def test_only_the_latest_rows_that_fit_are_kept(rows, height, first):
    live, frame = view(rows=rows, height=height, total_steps=20)
    for step in range(1, 21):
        live.write(step, RL)
    steps = re.findall(r"^ +(\d+) +1\.250", frame(), flags=re.MULTILINE)
    assert steps == [str(step) for step in range(first, 21)]


@pytest.mark.parametrize("width", range(20, 60, 3))
def test_a_narrow_terminal_loses_columns_not_digits(width):
    live, frame = view(width=width)
    live.write(3, RL)
    lines = frame().splitlines()
    assert all(len(line) <= width for line in lines)
    headings, _, cells = [line.split() for line in lines if line.strip()][-3:]
    count = len(cells)
    assert headings == ["step", "reward", "KL", "length", "tok/s", "s/step"][:count]
    assert cells == ["3", "1.250", "0.0125", "23.5", "4,321", "2.50"][:count]
    assert count == 6 or width < 55


def test_a_resumed_run_goes_on_in_the_middle_of_the_bar():
    _, frame = view(start_step=6)
    assert "rl 6/10" in frame()


def test_closing_twice_is_harmless():
    live, frame = view()
    live.close()
    frame()


@pytest.mark.parametrize(
    ("environment", "live", "coloured"),
    [
        ({"TERM": "xterm-256color"}, True, True),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, True, False),
        ({"TERM": "dumb"}, False, False),
    ],
)
def test_a_terminal_gets_the_live_view(environment, live, coloured):
    ours, theirs = pty.openpty()
    inherited = {
        name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "FORCE_COLOR", "COLORTERM"}
    }
    subprocess.run([sys.executable, "-c", SCRIPT], stdout=theirs, env=inherited | environment, check=True)
    os.close(theirs)
    output = b""
    try:
        while chunk := os.read(ours, 65536):
            output += chunk
    except OSError:  # Linux reports the end of a terminal so
        pass
    finally:
        os.close(ours)
    assert (b"\x1b[?25l" in output) is live
    assert (b"\x1b[38;5;" in output) is coloured
    assert b"0.5" in output


def test_text_without_a_terminal_even_where_colour_is_forced():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"FORCE_COLOR": "1"},
    )
    assert done.stdout == "phase=rl step=1 total=10 reward=0.5\n"


def test_the_live_view_says_what_is_being_done_and_for_how_long():
    live, frame = view()
    live.tell(Doing("update", compiling=True))
    live.tell(Doing("sampling", done=120, total=512))
    live.write(3, RL)
    shown = frame()
    assert re.search(r"sampling 120 / 512  0:0\d, of 0:0\d in all", shown)
    assert "compiling" not in shown


def test_the_live_view_says_what_either_program_does():
    live, frame = view()
    live.tell(Doing("sampling", done=120, total=512))
    live.tell(Doing("rewards", program="sampler"))
    live.write(4, RL)
    assert re.search(r"sampling 120 / 512  0:0\d; sampler: rewards  0:0\d, of 0:0\d in all", frame())


def test_an_evaluation_of_weights_some_steps_old_does_not_move_the_bar_back():
    live, frame = view()
    live.write(6, RL)
    live.write(4, EVALUATION)
    assert "6/" in frame()


def test_off_a_terminal_what_is_being_done_goes_to_stderr(tmp_path, capsys):
    sink = Console().open(tmp_path, 10, 0)
    sink.tell(Doing("loading", "policy, 1.0 GB"))
    sink.write(1, RL)
    sink.close()
    out, err = capsys.readouterr()
    assert err == "[0 s] loading policy, 1.0 GB\n"
    assert out.startswith("phase=rl step=1 ")
