"""`dovetail train`: the files of a run that is resumed."""

import json

from dovetail.cli import main
from dovetail.config import load
from dovetail.run.folder import ENVIRONMENT, open_folder


def _a_reward_that_differs(tmp_path, more=""):
    """Return two folders with a file of the same name, whose reward is 1 and 0; `a.gin` in the first one uses it."""
    work, elsewhere = tmp_path / "work", tmp_path / "elsewhere"
    for folder, score in ((work, 1), (elsewhere, 0)):
        folder.mkdir()
        (folder / "mine.py").write_text(f"def right(completions):\n    return [{score} for _ in completions]\n")
    (work / "a.gin").write_text(
        "train.rewards = ['functions']\nreward.functions.path = 'mine.py'\nreward.functions.name = 'right'\n" + more
    )
    return work, elsewhere


def test_a_run_is_resumed_from_another_folder_with_its_own_files(tmp_path, monkeypatch):
    work, elsewhere = _a_reward_that_differs(tmp_path)
    monkeypatch.chdir(work)
    open_folder(work / "run", load("a.gin")).close()
    assert json.loads((work / "run" / ENVIRONMENT).read_text())[0]["folder"] == str(work)

    trained = []

    def train(config, folder, **options):
        folder.mkdir(exist_ok=True)
        trained.append(config)

    monkeypatch.setattr("dovetail.training.loop.train", train)
    monkeypatch.chdir(elsewhere)
    for config in ("a.gin", "run/config.gin"):
        assert main(["train", str(work / config), "--folder", str(work / "run")]) == 0
    assert main(["train", str(work / "a.gin"), "--folder", str(elsewhere / "run")]) == 0
    used = [config.choice("train.rewards[0]").used["path"] for config in trained]
    assert used == [f"{work}/mine.py", f"{work}/mine.py", "mine.py"]


def test_run_folder_of_a_config_is_as_good_as_the_option(tmp_path, monkeypatch):
    work, elsewhere = _a_reward_that_differs(tmp_path, f"run.folder = '{tmp_path}/work/run'\n")
    monkeypatch.chdir(work)
    open_folder(work / "run", load("a.gin")).close()
    trained = []
    monkeypatch.setattr(
        "dovetail.training.loop.train", lambda config, folder, **options: trained.append((config, folder))
    )
    monkeypatch.chdir(elsewhere)
    assert main(["train", str(work / "a.gin")]) == 0
    ((config, folder),) = trained
    assert folder == work / "run"
    assert config.choice("train.rewards[0]").used["path"] == f"{work}/mine.py"
