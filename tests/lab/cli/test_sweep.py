"""`dovetail sweep` as a user types it: its output, its files, and one line for each mistake."""

import csv
import io
import json
import shutil

import pytest
from tests.lab.sweep import stub

from dovetail.cli import main
from dovetail_executor.executor.local import Local
from dovetail_lab.sweep import Store


def without_training(folder, monkeypatch):
    """Go to a folder, where an empty config is put, and whose trials do not train."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(Local, "open", lambda self, sweep, jobs: stub.Stub().open(sweep, jobs))
    (folder / "mine.gin").write_text("")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """An empty config in an empty folder, and trials without training."""
    without_training(tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a finished sweep of two settings and two seeds, whose worker takes seconds to start."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as monkeypatch:
        without_training(folder, monkeypatch)
        assert sweep("mine.gin", "--grid", "train.lr=0.1,0.11", "--seeds", "2", "--metric", "reward/mean") == 0
    return folder / "sweeps"


@pytest.fixture
def swept(finished, here, capsys) -> Store:
    """A copy of that sweep in the empty folder."""
    shutil.copytree(finished, "sweeps")
    capsys.readouterr()
    return Store.open(stub.Path("sweeps/mine"))


def sweep(*arguments: str) -> int:
    return main(["sweep", *arguments])


def test_dry_run_prints_every_trial_and_starts_none(capsys, tmp_path):
    arguments = ["--grid", "train.lr=1e-6,3e-6", "--grid", "train.policy_loss=ppo,gspo", "--seeds", "0:2"]
    arguments += ["--random", "2", "policy_loss.ppo.epsilon_low=loguniform(0.05,0.4)"]
    assert sweep("mine.gin", *arguments, "--exclude", "train.lr=1e-6,train.policy_loss=ppo", "--dry-run") == 0
    out = capsys.readouterr().out
    assert "8 trials in 2 groups" in out
    assert "lr=3e-06 policy_loss=ppo epsilon_low=" in out
    assert "note: 4 points come to the same run as another and are run once" in out
    assert not (tmp_path / "sweeps").exists()


def test_settings_of_what_options_choose_have_an_effect(capsys):
    grid = ["--grid", "train.lr=1e-6,3e-6", "--set", "early_stopping.median.grace=4", "--dry-run"]
    assert sweep("mine.gin", *grid, "--early-stopping", "median") == 0
    assert "grace" not in capsys.readouterr().out
    assert sweep("mine.gin", *grid) == 0
    said = "note: early_stopping.median.grace (--set early_stopping.median.grace=4) has no effect: "
    assert f"{said}sweep.early_stopping is None" in capsys.readouterr().out


def test_a_run_prints_what_happens_and_the_best(capsys):
    assert sweep("mine.gin", "--grid", "train.lr=0.1,0.11", "--metric", "reward/mean") == 0
    out = capsys.readouterr().out
    assert "lr=0.1 seed=0: done" in out
    assert "2 done   sweeps/mine" in out
    assert "best reward/mean: -0.5 (lr=0.1)" in out


def test_a_failed_trial_is_the_exit_status(capsys):
    assert sweep("mine.gin", "--grid", f"train.lr=0.1,{stub.FAILS}") == 1
    assert "failed, policy_loss/loss is nan at rl step 2" in capsys.readouterr().out


def test_the_config_may_say_it_all(capsys, tmp_path):
    (tmp_path / "all.gin").write_text(
        "sweep.grid = {'train.lr': (1e-6, 3e-6), 'train.policy_loss': ('ppo', 'gspo')}\n"
        "sweep.random = {'policy_loss.ppo.epsilon_low': 'uniform(0.05, 0.4)'}\n"
        "sweep.draws = 3\n"
        "sweep.seeds = '0:2'\n"
        "sweep.exclude = ('train.lr=1e-6,train.policy_loss=ppo',)\n"
        "sweep.early_stopping = 'median'\n"
        "early_stopping.median.grace = 5\n"
    )
    assert sweep("all.gin", "--dry-run") == 0
    assert "10 trials in 2 groups" in capsys.readouterr().out
    assert sweep("all.gin", "--dry-run", "--seeds", "1", "--grid", "train.lr=1e-5") == 0
    assert "4 trials in 2 groups" in capsys.readouterr().out


def test_status_has_a_line_for_each_trial(swept, capsys):
    assert sweep("status", "sweeps/mine") == 0
    out = capsys.readouterr().out
    heading, *trials, full, _ = out.splitlines()
    assert heading.split() == ["trial", "lr", "seed", "status", "step", "time"]
    assert len(trials) == 4
    assert full == "in full: train.lr"
    assert "4 done; no command is running it" in out


def test_table_has_a_line_for_each_setting_the_best_first(swept, capsys):
    assert sweep("table", "sweeps/mine") == 0
    heading, first, second, full = capsys.readouterr().out.splitlines()
    assert heading.split() == ["lr", "seeds", "reward/mean", "±", "best"]
    assert first.split() == ["0.1", "2/2", "-0.5", "0", "-0.1"]
    assert second.split()[0] == "0.11"
    assert full == "in full: train.lr"
    assert sweep("table", "sweeps/mine", "--goal", "min") == 0
    assert capsys.readouterr().out.splitlines()[1].startswith("0.11")


def test_export_as_csv_json_and_html(swept, capsys, tmp_path):
    assert sweep("export", "sweeps/mine") == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["train.lr"] for row in rows] == ["0.1", "0.11", "0.1", "0.11"]
    assert {row["status"] for row in rows} == {"done"}
    assert float(rows[0]["score"]) == -0.5
    assert sweep("export", "sweeps/mine", "--format", "json") == 0
    record = json.loads(capsys.readouterr().out)
    assert record["trials"][0]["curve"] == [[step, pytest.approx(-0.1 * step)] for step in range(1, 6)]
    assert record["space"]["seeds"] == [0, 1]
    assert sweep("export", "sweeps/mine", "--format", "html", "--output", str(tmp_path / "out.html")) == 0
    page = (tmp_path / "out.html").read_text()
    curves = page[page.index("<h2>Curves") :]
    assert curves.count('class="line"') == 4, "a mean curve for each setting, for wide and for narrow screens"
    assert "http" not in page, "one file, that needs no other"


def test_kill_without_a_trial_stops_the_sweep_and_with_one_that_trial(swept, capsys):
    for trial in swept.trials:
        (swept.folder(trial) / "state.json").unlink()
    first = swept.trials[0]
    assert sweep("kill", "sweeps/mine", first.id) == 0
    assert swept.state(first).status == "killed"
    assert sweep("kill", "sweeps/mine") == 0
    assert swept.all_asked_to_stop


@pytest.mark.slow
def test_more_of_the_same_is_kept_apart_from_something_else(swept, capsys):
    arguments = ["mine.gin", "--metric", "reward/mean", "--grid"]
    assert sweep(*arguments, "train.lr=0.1,0.11,0.12", "--seeds", "2") == 1
    assert "has 4 trials, this command has 2 more" in capsys.readouterr().err
    assert sweep(*arguments, "train.lr=0.1,0.12", "--seeds", "2") == 1
    assert "belongs to another sweep: grid: " in capsys.readouterr().err
    assert sweep(*arguments, "train.lr=0.1,0.11", "--seeds", "2", "--set", "train.steps=7") == 1
    assert "train.steps = 100 -> 7" in capsys.readouterr().err
    assert sweep(*arguments, "train.lr=0.1,0.11,0.12", "--seeds", "2", "--extend") == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--grid", "train.lrr=1,2"], "train has no setting 'lrr'. Did you mean 'lr'?"),
        (["--grid", "train.policy_loss=gpso"], "unknown policy_loss 'gpso'. Did you mean 'gspo'?"),
        (["--seeds", "x"], "seeds 'x': write a number of seeds"),
        (["--timeout", "1w"], "sweep.timeout '1w' is not a time; write 90s, 30m, 2h or 1d"),
        (["--executor", "locl"], "unknown executor 'locl'. Did you mean 'local'?"),
        (["--early-stopping", "medina"], "unknown early_stopping 'medina'. Did you mean 'median'?"),
        (["--metric", "reward/meen"], "has a metric 'reward/meen'. Did you mean 'reward/mean'?"),
        (["--metric", "reward/meen", "--dry-run"], "has a metric 'reward/meen'. Did you mean 'reward/mean'?"),
        (["--metric", "eval/acuracy", "--sampler", "tpe", "--random", "2", "train.lr=uniform(0.1,0.2)"], "accuracy'?"),
        (["--grid", "train.lr=1,2", "--sampler", "sobol"], "sampler 'sobol' has nothing to choose; write --random"),
        (["--jobs", "0"], "sweep.jobs: expected int >= 1, got 0"),
        (["--random", "3"], "--random 3: write a number of draws, then key=distribution"),
        (
            ["--grid", "train.lr=1,2", "--set", "sweep.max_trials=1"],
            "the space has 2 trials; raise sweep.max_trials = 1",
        ),
    ],
)
def test_mistakes_are_one_line(arguments, said, capsys):
    assert sweep("mine.gin", *arguments) == 1
    err = capsys.readouterr().err
    assert said in err
    assert err.startswith("error: ")
    assert not stub.Path("sweeps").exists()


def test_a_metric_that_one_setting_has_and_another_has_not_can_be_compared(capsys):
    arguments = ["mine.gin", "--grid", "train.kl_coef=0.0,0.1", "--dry-run", "--metric"]
    assert sweep(*arguments, "kl/mean") == 0
    assert sweep(*arguments, "kl/men") == 1
    assert "Did you mean 'kl/mean'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["status", "sweeps/mien"], "is not a sweep folder (no sweep.json). Did you mean 'mine'?"),
        (
            ["table", "sweeps/mine", "--metric", "reward/meen"],
            "has a metric 'reward/meen'. Did you mean 'reward/mean'?",
        ),
        (["kill", "sweeps/mine", "nobody"], "'nobody' names no trial"),
        (["export", "sweeps/mine", "--output", "no/such/folder"], "cannot be written: No such file"),
    ],
)
def test_mistakes_about_a_folder_are_one_line(swept, arguments, said, capsys):
    assert sweep(*arguments) == 1
    assert said in capsys.readouterr().err


def test_a_trial_at_its_end_cannot_be_killed(swept, capsys):
    assert sweep("kill", "sweeps/mine", swept.trials[0].id) == 1
    assert "is done already" in capsys.readouterr().err
