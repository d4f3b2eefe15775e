"""The view over all trials: a live table on a terminal, lines elsewhere."""

import io
import json

import pytest
from rich.console import Console
from tests.lab.sweep import stub

from dovetail_lab.sweep import State, Store
from dovetail_lab.sweep.progress import Lines, Live, latest, open_watch


@pytest.fixture
def store(tmp_path) -> Store:
    planned, about = stub.plan(stub.GOOD, 0.11, 0.12)
    made = Store.create(tmp_path / "s", planned, about)
    lines = [{"phase": "rl", "step": step, "score": step / 10} for step in (1, 2, 3)]
    text = "".join(json.dumps(line) + "\n" for line in [*lines, {"phase": "rl", "step": 4}])
    (made.folder(made.trials[0]) / "metrics.jsonl").write_text(text)
    return made


def test_the_latest_of_a_trial_is_its_step_and_the_last_value(store):
    assert latest(store, store.trials[0], "score") == (4, 0.3)
    assert latest(store, store.trials[1], "score") == (0, None)


def test_the_live_view_shows_all_trials_and_what_runs(store):
    page = io.StringIO()
    view = Live(
        store,
        "score",
        dict.fromkeys((t.id for t in store.trials), 10),
        Console(file=page, force_terminal=True, width=100),
    )
    running, done, waiting = store.trials
    view.look({running: State(status="running"), done: State(status="done"), waiting: State()})
    view.say("lr=0.5 seed=0: failed, a reason [with brackets]", ["the last line"])
    view.close()
    shown = page.getvalue()
    assert "1 of 3 trials" in shown
    assert "lr=0.1 seed=0" in shown
    assert "0.3" in shown
    assert "a reason [with brackets]" in shown
    assert "the last line" in shown


def test_lines_tell_what_changes_and_the_end_of_a_log(store, capsys):
    view = Lines()
    first, second, third = store.trials
    for status in ("waiting", "waiting", "running"):
        view.look({first: State(status=status), second: State(), third: State()})
    view.say("it failed", ["because"])
    assert capsys.readouterr().out == "3 waiting\n2 waiting, 1 running\nit failed\n    because\n"


def test_where_there_is_no_terminal_there_are_lines(store):
    assert isinstance(open_watch(store, "score", {}), Lines)
