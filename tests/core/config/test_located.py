"""Files that a config names by relative paths are found from any folder."""

import json
import re
import warnings

import pytest

from dovetail.config import config_id, dump, load
from dovetail.config.located import FILES, begun_in, note_files
from dovetail.errors import ConfigError, DovetailWarning
from dovetail.run.code import files_named_by

REWARD = ["train.rewards=functions", "reward.functions.path=mine.py", "reward.functions.name=right"]
DATA = ["train.task=records", "task.records.path=('a.jsonl','more/b.jsonl')"]


@pytest.fixture
def places(tmp_path, monkeypatch):
    """A folder with files, in which a run was started, and one in which the commands are given."""
    work, elsewhere = tmp_path / "work", tmp_path / "elsewhere"
    (work / "more").mkdir(parents=True)
    elsewhere.mkdir()
    for name in ("a.jsonl", "more/b.jsonl"):
        (work / name).write_text('{"prompt": "2 + 3 = ", "answer": "5"}\n')
    (work / "mine.py").write_text("def right(completions):\n    return [1.0 for _ in completions]\n")
    monkeypatch.chdir(work)
    return work, elsewhere


def started(work, *overrides):
    """Write the config of a run that was started in a folder."""
    config = load(None, overrides)
    run = work / "run"
    run.mkdir()
    (run / "config.gin").write_text(dump(config))
    note_files(run, config)
    return config, run / "config.gin"


def used(config, slot, name="path"):
    return config.choice(slot).used[name]


def test_a_run_is_read_from_another_folder_with_the_files_that_it_was_started_with(places, monkeypatch):
    work, elsewhere = places
    config, file = started(work, *REWARD, *DATA)
    assert used(config, "train.task") == ("a.jsonl", "more/b.jsonl"), (
        "where it is started, they stay as they are written"
    )
    monkeypatch.chdir(elsewhere)
    again = load(file)
    assert used(again, "train.task") == (f"{work}/a.jsonl", f"{work}/more/b.jsonl")
    assert used(again, "train.rewards[0]") == f"{work}/mine.py"
    assert again.choice("train.task").bind().columns == ("answer", "data_source")
    assert files_named_by(again) == {"mine.py": work / "mine.py"}
    assert (again, config_id(again), dump(again)) == (config, config_id(config), dump(config))


def test_an_included_config_of_a_run_brings_its_files(places, monkeypatch):
    work, elsewhere = places
    started(work, *REWARD)
    monkeypatch.chdir(elsewhere)
    (elsewhere / "mine.gin").write_text("include '../work/run/config.gin'\ntrain.lr = 0.5\n")
    config = load("mine.gin")
    assert used(config, "train.rewards[0]") == f"{work}/mine.py"
    note_files(elsewhere, config)
    assert json.loads((elsewhere / FILES).read_text()) == {"mine.py": str(work)}, "of the run that goes on from it, too"


def test_what_is_typed_is_meant_from_here_unless_it_resumes(places, monkeypatch):
    work, elsewhere = places
    _, file = started(work, *REWARD)
    monkeypatch.chdir(elsewhere)
    (elsewhere / "mine.py").write_text((work / "mine.py").read_text())
    assert used(load(file, [REWARD[1]]), "train.rewards[0]") == "mine.py"
    assert used(load(None, REWARD), "train.rewards[0]") == "mine.py"
    with begun_in(work / "run"):
        assert used(load(None, REWARD), "train.rewards[0]") == f"{work}/mine.py"


@pytest.mark.parametrize(
    ("path", "noted"),
    [
        ("Qwen/Qwen2.5-0.5B", False),
        ("models/q", True),
        ("{work}/models/q", False),
        ("~/models/q", False),
        ("package:llm", False),
    ],
)
def test_only_relative_paths_of_files_that_are_there_are_noted(places, path, noted):
    work, _ = places
    (work / "models/q").mkdir(parents=True)
    (work / "package").mkdir()
    _, file = started(work, "train.model=pretrained", f"model.pretrained.path='{path.format(work=work)}'")
    assert (file.parent / FILES).exists() == noted


def test_a_file_with_the_name_of_what_is_in_it_is_a_file(places):
    work, elsewhere = places
    config = load(None, ["train.model=pretrained", "model.pretrained.path='mine.py:Model'"])
    note_files(elsewhere, config)
    assert json.loads((elsewhere / FILES).read_text()) == {"mine.py:Model": str(work)}


def test_a_name_on_a_hub_stays_one_in_every_folder(places, monkeypatch):
    work, elsewhere = places
    _, file = started(work, "train.model=pretrained", "model.pretrained.path='Qwen/Qwen2.5-0.5B'", *REWARD)
    monkeypatch.chdir(elsewhere)
    assert used(load(file), "train.model") == "Qwen/Qwen2.5-0.5B"


def test_the_files_of_a_dict_are_found(places, monkeypatch):
    work, elsewhere = places
    _, file = started(work, "train.task=dataset", "task.dataset.path=json", "task.dataset.files={'train':'a.jsonl'}")
    monkeypatch.chdir(elsewhere)
    config = load(file)
    assert (used(config, "train.task", "path"), used(config, "train.task", "files")) == (
        "json",
        {"train": f"{work}/a.jsonl"},
    )


def test_a_moved_file_is_taken_from_here_and_that_is_said(places, monkeypatch):
    work, elsewhere = places
    _, file = started(work, *REWARD)
    (work / "mine.py").rename(elsewhere / "mine.py")
    monkeypatch.chdir(elsewhere)
    said = (
        rf"config.gin:\d+: reward.functions.path = 'mine.py' is not in '{work}', where it was when the run was started"
    )
    with pytest.warns(DovetailWarning, match=rf"{said}; the one in '{elsewhere}' is taken$"):
        config = load(file)
    assert used(config, "train.rewards[0]") == "mine.py"
    note_files(file.parent, config)
    monkeypatch.chdir(work)
    assert used(load(file), "train.rewards[0]") == f"{elsewhere}/mine.py", "a run that is resumed there notes it"


def test_a_file_that_is_nowhere_is_said_with_what_helps_before_it_is_missed(places, monkeypatch):
    work, elsewhere = places
    _, file = started(work, *DATA, *REWARD)
    (work / "mine.py").unlink()
    monkeypatch.chdir(elsewhere)
    said = (
        rf"reward.functions.path = 'mine.py' is not in '{work}', where it was when the run was started, nor in"
        rf" '{elsewhere}'; if it is needed, give the command in the folder that has it now, or add --set"
        " reward.functions.path=PATH"
    )
    with pytest.warns(DovetailWarning, match=said), pytest.raises(ConfigError, match=re.escape(f"{work}/mine.py")):
        load(file)


def test_data_that_is_nowhere_does_not_keep_a_config_from_being_read(places, monkeypatch):
    work, elsewhere = places
    _, file = started(work, *DATA)
    (work / "a.jsonl").unlink()
    monkeypatch.chdir(elsewhere)
    with pytest.warns(DovetailWarning, match=r"task.records.path = 'a.jsonl' is not in"):
        config = load(file, trusted=False)
    assert used(config, "train.task") == (f"{work}/a.jsonl", f"{work}/more/b.jsonl")


@pytest.mark.parametrize("record", ["{", "[]", "3", '{"a.jsonl": 3}', '{"a.jsonl": "work"}', '{"a.jsonl": ""}'])
def test_a_record_of_another_form_changes_nothing(places, record):
    work, _ = places
    config, file = started(work, *DATA)
    (file.parent / FILES).write_text(record)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert used(load(file), "train.task") == used(config, "train.task")


def test_a_resume_keeps_what_is_noted_of_files_that_are_not_there_now(places, monkeypatch):
    work, elsewhere = places
    _, file = started(work, *DATA)
    (work / "a.jsonl").unlink()
    monkeypatch.chdir(elsewhere)
    with pytest.warns(DovetailWarning, match=r"a.jsonl"):
        note_files(file.parent, load(file))
    assert json.loads((file.parent / FILES).read_text()) == {"a.jsonl": str(work), "more/b.jsonl": str(work)}
