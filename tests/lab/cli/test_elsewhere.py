"""Commands that are given in another folder than the one in which they were first given."""

import json

import pytest

from dovetail.cli import main
from dovetail.config import load, run_id
from dovetail.config.located import note_files
from dovetail_lab.one_run import train

OVER = {
    "sweep": ["--grid", "train.lr=0.1,0.2"],
    "ab": ["--arm", "a:train.lr=0.1", "--arm", "b:train.lr=0.2", "--seeds", "2"],
}


@pytest.mark.parametrize("command", OVER)
def test_what_has_begun_is_planned_again_with_its_own_files(command, tmp_path, monkeypatch, capsys):
    work, elsewhere, folder = tmp_path / "work", tmp_path / "elsewhere", tmp_path / "many"
    for place in (work, elsewhere, folder):
        place.mkdir()
    (work / "mine.py").write_text("def right(completions):\n    return [1.0 for _ in completions]\n")
    (work / "a.gin").write_text(
        "include 'quickstart.gin'\ntrain.rewards = ['functions']\n"
        "reward.functions.path = 'mine.py'\nreward.functions.name = 'right'\n"
    )
    given = [command, str(work / "a.gin"), *OVER[command], "--folder", str(folder), "--dry-run"]
    monkeypatch.chdir(work)
    note_files(folder, load("a.gin"))
    monkeypatch.chdir(elsewhere)
    assert main(given) == 0, capsys.readouterr().err
    (folder / "files.json").unlink()
    assert main(given) == 1
    assert f"there is no Python file {elsewhere}/mine.py" in capsys.readouterr().err


def test_a_run_that_is_not_resumed_because_its_folder_is_meant_from_elsewhere_is_named(tmp_path, monkeypatch, capsys):
    work, elsewhere = tmp_path / "work", tmp_path / "elsewhere"
    for place in (work / "runs" / "mine", elsewhere):
        place.mkdir(parents=True)
    (work / "a.gin").write_text("run.folder = 'runs/mine'\n")
    begun = work / "runs" / "mine" / "run.json"
    begun.write_text(json.dumps({"run_id": run_id(load(str(work / "a.gin")))}))
    monkeypatch.setattr("dovetail.training.loop.train", lambda config, folder, **options: None)
    for place, told in ((work, False), (elsewhere, True)):
        monkeypatch.chdir(place)
        main(["train", str(work / "a.gin")])
        said = capsys.readouterr().err
        assert (f"the one that has begun in '{work}/runs/mine' is not resumed; to do that" in said) == told, said
    begun.write_text(json.dumps({"run_id": "another-s0"}))
    main(["train", str(work / "a.gin")])
    assert "is not resumed" not in capsys.readouterr().err
    (elsewhere / "runs" / "mine").mkdir(parents=True)
    begun.unlink()
    assert main(["train", str(work / "a.gin")]) == 0, "no run has begun there"


def test_python_resumes_the_run_folder_of_a_config_with_its_own_files(tmp_path, monkeypatch):
    work, elsewhere = tmp_path / "work", tmp_path / "elsewhere"
    for place, score in ((work, 1), (elsewhere, 0)):
        (place / "run").mkdir(parents=True)
        (place / "mine.py").write_text(f"def right(completions):\n    return [{score} for _ in completions]\n")
    (work / "a.gin").write_text(
        "train.rewards = ['functions']\nreward.functions.path = 'mine.py'\nreward.functions.name = 'right'\n"
        f"run.folder = '{work}/run'\n"
    )
    monkeypatch.chdir(work)
    note_files(work / "run", load("a.gin"))
    (work / "run" / "run.json").write_text("{}")
    trained = []
    monkeypatch.setattr("dovetail.training.loop.train", lambda config, folder, **options: trained.append(config))
    monkeypatch.chdir(elsewhere)
    assert train(work / "a.gin").folder == work / "run"
    assert trained[0].choice("train.rewards[0]").used["path"] == f"{work}/mine.py"
