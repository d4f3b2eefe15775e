"""A sampler that learns chooses the trials of a sweep while it is driven; whoever is killed, the study goes on exactly."""

import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import attrs
import numpy as np
import pytest
from tests.lab.sweep import stub
from tests.lab.sweep.test_driver import steps, until

import dovetail
from dovetail.cli import main
from dovetail.errors import RunError
from dovetail_executor.executor.local import Local
from dovetail_lab.kinds import Proposal
from dovetail_lab.sweep import Store
from dovetail_lab.sweep.search import LOG

RATES = "train.lr=uniform(0.01,0.09)"


@pytest.fixture(scope="module", autouse=True)
def here(tmp_path_factory):
    """A folder with a config, in which trials take no training: the smaller the rate, the better."""
    folder = tmp_path_factory.mktemp("here")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(Local, "open", lambda self, sweep, jobs: stub.Stub().open(sweep, jobs))
        (folder / "mine.gin").write_text(
            "train.steps = 5\nsft.steps = 3\nrun.checkpoint_every = 1\nsweep.metric = 'reward/mean'\n"
            "sampler.pbt.interval = 2\n"
        )
        yield folder


@pytest.fixture(scope="module")
def whole(here) -> str:
    """The folder of a population that nobody has disturbed."""
    assert study("whole", "pbt") == 0
    return "whole"


@pytest.fixture(scope="module")
def whole_tpe(here) -> str:
    """Likewise of a sampler that learns from what each trial has come to."""
    assert study("whole-tpe", "tpe") == 0
    return "whole-tpe"


def sweep(folder: str, draws: int, *arguments: str, sampler: str = "pbt") -> int:
    return main(
        ["sweep", "mine.gin", "--folder", folder, "--sampler", sampler, "--random", str(draws), RATES, *arguments]
    )


def study(folder: str, sampler: str) -> int:
    """Four draws: of a population at once, and otherwise one by one, so that each is asked for after the one before."""
    return sweep(folder, 4, *(["--jobs", "1"] if sampler != "pbt" else []), sampler=sampler)


def log(folder: str) -> list[dict]:
    return [json.loads(line) for line in (Path(folder) / LOG).read_text().splitlines()]


def told(folder: str) -> dict[int, float]:
    return {line["told"]: line["value"] for line in log(folder) if "told" in line}


@pytest.mark.slow
def test_a_sampler_that_learns_is_told_what_its_settings_come_to_over_their_seeds(capsys):
    pytest.importorskip("optuna")
    assert sweep("tpe", 4, "--seeds", "2", sampler="tpe") == 0
    store = Store.open(Path("tpe"))
    assert len(store.trials) == 8
    rates = [float(line["values"]["train.lr"]) for line in log("tpe") if "ask" in line]
    assert told("tpe") == {number: pytest.approx(-5 * round(rate, 3)) for number, rate in enumerate(rates)}
    pids = {line["pid"] for each in store.trials for line in store.metrics(each)}
    assert len(pids) == 1, "one worker runs them all, with what it has compiled"
    assert "8 done" in capsys.readouterr().out


@pytest.mark.slow
def test_more_draws_go_on_where_the_study_stands(capsys):
    pytest.importorskip("optuna")
    assert sweep("s", 3, sampler="tpe") == 0
    before = (Path("s") / LOG).read_text()
    assert sweep("s", 5, sampler="tpe") == 1
    assert "has 3 draws, this command 5. Say --extend" in capsys.readouterr().err
    assert sweep("s", 5, "--extend", sampler="tpe") == 0
    assert (Path("s") / LOG).read_text().startswith(before)
    assert sweep("at-once", 5, sampler="tpe") == 0
    assert log("at-once") == log("s")


def outcome(folder: str) -> dict[str, tuple]:
    store = Store.open(Path(folder))
    return {
        trial.id: (store.state(trial).status, [(line["step"], line["score"]) for line in store.metrics(trial)])
        for trial in store.trials
    }


@pytest.mark.slow
def test_a_population_copies_and_goes_on(whole, capsys):
    store = Store.open(Path(whole))
    statuses = {trial.id: store.state(trial).status for trial in store.trials}
    assert sorted(statuses.values()) == ["done"] * 4 + ["pruned"] * 2
    heirs = [trial for trial in store.trials if (store.folder(trial) / "ancestor.json").exists()]
    assert len(heirs) == 2
    for heir in heirs:
        ancestor = json.loads((store.folder(heir) / "ancestor.json").read_text())
        parent = store.find(ancestor["trial"])
        done = ancestor["checkpoint"] - 3
        assert heir.seed == parent.seed
        assert store.metrics(heir)[:done] == store.metrics(parent)[:done], "its records begin with its parent's"
        assert store.metrics(heir)[done:] != store.metrics(parent)[done:]
        assert steps(store, heir) == list(range(1, len(steps(store, heir)) + 1))
    assert sweep(whole, 4) == 0
    assert capsys.readouterr().out.splitlines()[0] == "4 done, 2 pruned", "what is done is not run again"


@pytest.mark.slow
@pytest.mark.parametrize(("sampler", "after"), [("pbt", 2), ("pbt", 7), ("tpe", 1), ("tpe", 4)])
def test_a_killed_driver_loses_nothing_of_a_study(sampler, after, request, monkeypatch):
    """Killed while it writes, it leaves half a line; its worker goes on alone; the same command ends in the same sweep."""
    if sampler == "tpe":
        pytest.importorskip("optuna")
    whole = request.getfixturevalue({"pbt": "whole", "tpe": "whole_tpe"}[sampler])
    folder = f"killed-{sampler}-{after}"
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    driver = subprocess.Popen([sys.executable, __file__, folder, sampler])
    path = Path(folder) / LOG
    until(lambda: path.exists() and len(path.read_text().splitlines()) > after, "the study begins")
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    with path.open("a") as file:
        file.write('{"told": 0, "val')
    assert study(folder, sampler) == 0
    assert outcome(folder) == outcome(whole)
    assert told(folder) == told(whole)


@pytest.mark.slow
def test_a_sampler_that_answers_otherwise_is_one_line(whole, capsys):
    shutil.copytree(whole, "edited")
    lines = log("edited")
    lines[0]["values"]["train.lr"] = "0.5"
    (Path("edited") / LOG).write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert sweep("edited", 4) == 1
    assert "proposal 0 was {'train.lr': '0.5'}, and the sampler now answers {'train.lr'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--grid", "train.policy_loss=ppo,gspo"], "chooses all that varies, so that grid has no place beside it"),
        (["--set", "sweep.max_trials=3"], "the space has 4 trials; raise sweep.max_trials = 3"),
        (["--set", "run.checkpoint_every=4"], "looks at step 2, where run.checkpoint_every = 4 makes no checkpoint"),
        (["--set", "sweep.random={'train.steps': 'int(-1,5)'}"], "train.steps: expected"),
    ],
)
def test_what_cannot_be_is_said_before_anything_runs(arguments, said, capsys):
    for more in ([], ["--dry-run"]):
        assert sweep("new", 4, *arguments, *more) == 1
        assert said in capsys.readouterr().err


@attrs.frozen(kw_only=True)
class OddSampler:
    """A sampler that raises, or gives what is no proposal."""

    learns = True
    answer: str = ""

    def open(self, space, *, draws, seed, total_steps):
        return self

    def ask(self):
        if not self.answer:
            raise ValueError("no more points")
        proposals = {
            "beyond": {"train.lr": 5.0},
            "another": {"policy_loss.grpo.epsilon_low": 0.1},
            "of numpy": {"train.lr": np.float64(0.05)},
        }
        return Proposal(values=proposals[self.answer]) if self.answer in proposals else self.answer

    def tell(self, number, result):
        pass


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("", "raised ValueError: no more points"),
        ("beyond", "proposes train.lr=5.0, which is not in uniform(0.01, 0.09)"),
        ("another", "proposes values for policy_loss.grpo.epsilon_low; there are train.lr to choose"),
        ("of numpy", "proposes for train.lr: np.float64(0.05) is not a gin value"),
        ("0.5", "answered '0.5' to `ask`; return a dovetail_lab.kinds.Proposal, or None for the end"),
    ],
)
def test_a_sampler_that_is_wrong_is_named_with_its_line(answer, said, capsys):
    dovetail.register("sampler", "odd", OddSampler)
    assert sweep("odd", 2, "--set", f"sampler.odd.answer={answer!r}", "--dry-run", sampler="odd") == 1
    assert re.search(
        rf"^error: sampler\.odd of \S+ .*{re.escape(said)} \[.*test_search\.py:\d+\]$", capsys.readouterr().err, re.M
    )


def test_another_space_is_refused(whole, capsys):
    assert sweep(whole, 4, "--dry-run") == 0
    assert "4 settings, chosen by pbt(factor=1.2, interval=2, " in capsys.readouterr().out
    assert sweep(whole, 4, "--draw-seed", "3") == 1
    assert "belongs to another sweep: draw_seed: 0 -> 3" in capsys.readouterr().err
    assert sweep(whole, 4, "--set", "train.epochs=2") == 1
    assert "belongs to another sweep: train.epochs = 1 -> 2" in capsys.readouterr().err


def test_a_copy_of_what_has_gone_on_is_refused(tmp_path):
    store, _ = stub.sweep(tmp_path / "s", 0.1, 0.11)
    first, second = store.trials
    planned, _ = stub.plan(0.1, 0.11)
    with pytest.raises(RunError, match=r"begins with checkpoint 3 of .*, whose newest is 0"):
        store.branch(first, second, planned.configs[second.id], 3)


if __name__ == "__main__":
    Local.open = lambda self, sweep, jobs: stub.Stub().open(sweep, jobs)
    sys.exit(study(*sys.argv[1:]))
