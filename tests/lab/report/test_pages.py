"""`dovetail report` on the folders of runs and sweeps."""

import json
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from dovetail.cli import main
from dovetail.config import config_id, dump, load, run_id
from dovetail.run.journal import Journal
from dovetail_lab.report.curves import mean_curves, smoothed


class Balanced(HTMLParser):
    """Fails at a tag that is closed out of order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag, attrs):
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture
def run(tmp_path):
    """Return a function that creates the folder of a run with some steps."""

    def make(name: str, *sets: str, steps: int = 30) -> Path:
        config, folder = load(None, sets), tmp_path / name
        folder.mkdir()
        (folder / "config.gin").write_text(dump(config))
        (folder / "run.json").write_text(json.dumps({"config_id": config_id(config), "run_id": run_id(config)}))
        start = {"time": "now", "command": ["dovetail", "train"], "plugins": {"dovetail": "0"}, "libraries": {}}
        (folder / "environment.json").write_text(json.dumps([start]))
        journal = Journal(folder)
        for step in range(1, steps + 1):
            journal.metrics("rl", step, {"reward/mean": step / steps, "entropy/mean": 1 / step, "acme/odd": 1.0})
            journal.timings("rl", step, {"time/update": 3.0, "time/rollout": 1.0, "time/step": 4.0})
        if steps:
            journal.metrics("rl", steps, {"eval/accuracy": 0.75})
            journal.samples("rl", steps, [{"prompt": "1 < 2?", "completion": "<b>yes</b>", "score": 1.0}])
        journal.close()
        return folder

    return make


def report(*arguments: str | Path) -> int:
    return main(["report", *map(str, arguments)])


def test_runs_of_one_name_are_told_apart(run, tmp_path):
    for experiment in ("long", "short"):
        (tmp_path / experiment).mkdir()
        run(f"{experiment}/seed-0")
    out = tmp_path / "page.html"
    assert report(tmp_path / "long" / "seed-0", tmp_path / "short" / "seed-0", "--output", out) == 0
    page = out.read_text()
    assert "long/seed-0</span>" in page
    assert "About short/seed-0" in page


def test_values_that_are_not_finite_are_counted(run, tmp_path):
    folder = run("odd", steps=4)
    journal = Journal(folder)
    for step, value in enumerate((1.0, float("nan"), float("inf"), 2.0), start=5):
        journal.metrics("rl", step, {"kl/mean": value})
    journal.close()
    assert report(folder) == 0
    assert "without 2 of 4 values, which are not finite" in (folder / "report.html").read_text()


def test_more_runs_than_colours_say_so(run, tmp_path):
    folders = [run(f"run-{number}", steps=2) for number in range(9)]
    assert report(*folders, "--output", tmp_path / "page.html") == 0
    assert "There are 8 colours" in (tmp_path / "page.html").read_text()


def read(path: Path) -> str:
    page = path.read_text()
    parser = Balanced()
    parser.feed(page)
    assert parser.open == []
    assert "http" not in page
    assert "<script src" not in page
    assert "nan" not in page.replace("balanced", "")
    return page


def test_the_best_value_is_a_number(run):
    """The reward of the first step is NaN, as where no completion has a score."""
    folder = run("mine", steps=0)
    journal = Journal(folder)
    for step, reward in enumerate((float("nan"), 0.25, 0.5, 0.375), 1):
        journal.metrics("rl", step, {"reward/mean": reward})
    journal.close()
    report(folder)
    cells = ["–", "0.375", "", "0.5", "3"]  # first, last, interval, best, at step
    assert "".join(f'<td class="n">{cell}</td>' for cell in cells) in read(folder / "report.html")


def test_the_page_of_a_run(run, capsys):
    folder = run("mine")
    assert report(folder) == 0
    assert capsys.readouterr().out.strip() == str(folder / "report.html")
    page = read(folder / "report.html")
    assert "Run mine" in page
    assert "75.0\u00a0%" in page
    assert "update 75\u00a0%, rollout 25\u00a0%" in page
    assert "&lt;b&gt;yes&lt;/b&gt;" in page, "what a model writes is text"
    assert "acme/odd" in page[page.index("All other metrics") :]
    assert "train.policy_loss = &#x27;grpo&#x27;" in page


def test_a_curve_without_a_number_is_left_out_and_the_page_says_why(run):
    folder = run("mine")
    journal = Journal(folder)
    journal.metrics("rl", 31, {"eval/pass@1": float("nan"), "acme/none": float("nan")})
    journal.close()
    assert report(folder) == 0
    page = (folder / "report.html").read_text()
    assert "eval/pass@1 by step" not in page
    assert "eval/accuracy by step" in page
    assert "Not drawn, because every value is NaN or beyond what can be drawn: eval/pass@1, acme/none." in page


def test_the_page_of_an_extended_run_says_so(run):
    folder = run("mine")
    identity = json.loads((folder / "run.json").read_text())
    assert "after step" not in (report(folder), read(folder / "report.html"))[1]
    changes = [{"run_id": "a-s0", "from": 30, "to": 60, "after": 30}]
    (folder / "run.json").write_text(json.dumps(identity | {"extended": changes}))
    assert report(folder) == 0
    assert "30 → 60 after step 30" in read(folder / "report.html")


def test_an_accuracy_has_its_interval_and_a_prompt_is_shown_once_with_what_was_expected(run):
    folder = run("mine")
    journal = Journal(folder)
    journal.metrics("rl", 31, {"eval/accuracy": 0.75})
    journal.prompts("rl", 31, {"accuracy": np.array([1.0, 1.0, 1.0, 0.0])})
    said = [("1 + 1", "2", "two"), ("1 + 1", "2", "2"), ("1 + 2", "3", "4")]
    journal.samples("rl", 31, [{"prompt": p, "expected": e, "completion": c, "score": 0.0} for p, e, c in said])
    journal.close()
    assert report(folder) == 0
    page = read(folder / "report.html")
    assert "30.1\u00a0% to 95.4\u00a0%" in page, "Wilson's, of three in four"
    shown = page[page.index("Completions at step 31") :]
    assert shown.count(">1 + 1<") == 1
    assert '<th scope="col">expected</th>' in shown
    assert ">3</td>" in shown


def test_a_completion_is_shown_with_the_columns_that_its_rewards_read(run):
    folder = run("mine")
    journal = Journal(folder)
    sample = {"prompt": "p", "expected": "e", "columns": {"tests": "f(1) < 2", "level": 3}, "completion": "c"}
    journal.samples("rl", 31, [sample | {"score": 0.0}])
    journal.samples("rl", 32, [sample | {"score": 0.0, "messages": [], "ended": "done"}])
    journal.close()
    assert report(folder) == 0
    assert "done · score 0 · expected: e · tests: f(1) &lt; 2 · level: 3" in read(folder / "report.html")
    lines = (folder / "samples.jsonl").read_text().splitlines(keepends=True)
    (folder / "samples.jsonl").write_text("".join(lines[:-1]))
    assert report(folder) == 0
    shown = read(folder / "report.html").partition("Completions at step 31")[2]
    assert [f'<th scope="col">{name}</th>' in shown for name in ("expected", "tests", "level")] == [True] * 3
    assert ">f(1) &lt; 2</td>" in shown


def test_episodes_are_conversations_with_the_reward_of_each_turn(run):
    folder = run("games")
    said = [
        {"role": "assistant", "content": "8"},
        {"role": "tool", "name": "judge", "content": "<i>lower</i>"},
        {"role": "assistant", "content": "4"},
    ]
    journal = Journal(folder)
    played = {"prompt": "Guess.", "completion": "84", "score": 0.75, "ended": "done"}
    journal.samples("rl", 31, [{**played, "turn_rewards": [0.0, 0.75], "messages": said}])
    journal.close()
    assert report(folder) == 0
    page = read(folder / "report.html")
    shown = page[page.index("Episodes at step 31") :]
    inside = [
        "Guess.",
        ">assistant<",
        ">0<",
        ">8<",
        ">tool judge<",
        "&lt;i&gt;lower",
        ">0.75<",
        ">4<",
        "done · score 0.75",
    ]
    places = [shown.index(part) for part in inside]
    assert places == sorted(places)


def test_several_runs_on_one_page(run, tmp_path, monkeypatch):
    first, second = run("first"), run("second", "train.lr=1e-3", "run.seed=1")
    monkeypatch.chdir(tmp_path)
    assert report(first, second) == 0
    page = read(tmp_path / "report.html")
    assert "2 runs" in page
    assert "train.lr = 0.0001 -&gt; 0.001" in page
    assert report(first, second, "--output", tmp_path / "other.html") == 0
    assert (tmp_path / "other.html").read_text() == page


def test_a_run_that_has_just_begun(run):
    folder = run("young", steps=0)
    assert report(folder) == 0
    assert "No step of reinforcement learning is recorded yet" in read(folder / "report.html")


def test_mistakes_are_one_line(run, tmp_path, capsys):
    folder = run("mine")
    assert report(tmp_path / "mnie") == 1
    assert "holds no run, sweep or A/B test. Did you mean 'mine'?" in capsys.readouterr().err
    (tmp_path / "swept").mkdir()
    (tmp_path / "swept" / "sweep.json").write_text("{}")
    assert report(folder, tmp_path / "swept") == 1
    assert "swept' is a sweep: a page holds several runs, or one sweep, or one A/B test" in capsys.readouterr().err
    (folder / "run.json").write_text("{")
    assert report(folder) == 1
    assert "cannot be read" in capsys.readouterr().err
    assert report(tmp_path / "swept") == 1
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_smoothing_keeps_the_mean_and_short_curves():
    curve = {step: float(step % 7) for step in range(1, 1001)}
    found = smoothed(curve)
    assert len(found) == 100
    assert sum(found.values()) / 100 == pytest.approx(sum(curve.values()) / 1000)
    assert smoothed({1: 2.0, 5: 3.0}) == {1: 2.0, 5: 3.0}
    assert smoothed({}) == {}


def test_the_mean_of_curves_is_at_common_steps():
    found = mean_curves([{0: 1.0, 10: 3.0, 20: 9.0}, {0: 2.0, 10: 5.0}])
    assert (found.steps, found.mean) == ((0, 10), (1.5, 4.0))
    assert found.low[1] < 4.0 < found.high[1]
    assert mean_curves([]).steps == ()
