"""Run folders: whose they are."""

from __future__ import annotations

import json
import platform
from types import SimpleNamespace

import pytest

from dovetail.config import load
from dovetail.errors import RunError
from dovetail.run.folder import branch_folder, follow_folder, open_folder
from dovetail.run.journal import MESSAGES


def config(tmp_path, *overrides):
    """A config that names a program, which a run folder's config may not do unless it is trusted."""
    (tmp_path / "a.gin").write_text("train.rewards = ['functions']\nreward.functions.name = 'all_right'\n")
    (tmp_path / "mine.py").write_text("def all_right(completions):\n    return [1.0 for _ in completions]\n")
    return load(tmp_path / "a.gin", [f"reward.functions.path='{tmp_path}/mine.py'", *overrides])


def test_a_run_that_never_began_leaves_its_folder_to_another(tmp_path):
    open_folder(tmp_path / "r", config(tmp_path)).close()
    (tmp_path / "r" / "tokenizer").mkdir()
    (tmp_path / "r" / "notes.txt").write_text("mine")
    (tmp_path / "r" / "checkpoints" / "steps").mkdir(parents=True)
    other = open_folder(tmp_path / "r", config(tmp_path, "train.lr=0.5"))
    other.close()
    assert load(tmp_path / "r" / "config.gin").train.lr == 0.5
    assert not (tmp_path / "r" / "tokenizer").exists(), "it may be another tokenizer"
    assert (tmp_path / "r" / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("kept", ["metrics.jsonl", "tools.jsonl", "checkpoints/steps/1"])
def test_a_run_that_has_begun_keeps_its_folder(kept, tmp_path):
    open_folder(tmp_path / "r", config(tmp_path)).close()
    (tmp_path / "r" / kept).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "r" / kept).write_text("{}\n")
    said = "this one is .*: train.lr = 0.0001 -> 0.5. Choose another --folder"
    with pytest.raises(RunError, match=said):
        open_folder(tmp_path / "r", config(tmp_path, "train.lr=0.5"))


@pytest.mark.parametrize(
    ("in_flight", "said", "kept"),
    [(True, None, True), (True, False, False), (False, None, False), (False, True, True)],
)
def test_what_cannot_be_sampled_again_is_kept_unless_the_config_says_otherwise(in_flight, said, kept, tmp_path):
    ahead = ("train.rollout=vllm", "train.staleness=1", "train.correction=['tis_token']")
    mine = config(tmp_path, *ahead, f"train.in_flight={in_flight}", f"run.keep_messages={said}")
    folder = open_folder(tmp_path / "r", mine)
    folder.close()
    assert folder.journal.keeps_messages == (tmp_path / "r" / MESSAGES).exists() == kept


def test_another_process_of_the_run_must_see_its_folder(tmp_path):
    open_folder(tmp_path / "shared", config(tmp_path)).close()
    follow_folder(tmp_path / "shared", config(tmp_path)).close()
    with pytest.raises(RunError) as error:
        follow_folder(tmp_path / "local", config(tmp_path))
    assert str(error.value) == (
        f"run folder '{tmp_path}/local', which process 0 has opened, is not there on {platform.node()}:"
        " --folder must be on a disk that all hosts share"
    )
    assert not (tmp_path / "local").exists()


def test_a_run_goes_on_from_a_copy_of_another(tmp_path):
    mine = config(tmp_path, "train.lr=0.5")
    (tmp_path / "a" / "checkpoints" / "steps" / "2").mkdir(parents=True)
    (tmp_path / "a" / "metrics.jsonl").write_text("{}\n")
    for _ in range(2):  # the second one as after a kill
        branch_folder(tmp_path / "a", tmp_path / "b", mine)
    open_folder(tmp_path / "b", mine).close()
    assert (tmp_path / "b" / "metrics.jsonl").read_text() == "{}\n"
    assert [each.name for each in (tmp_path / "b" / "checkpoints" / "steps").iterdir()] == ["2"]


def test_every_start_notes_what_it_computes_on(tmp_path, monkeypatch):
    open_folder(tmp_path / "r", config(tmp_path)).close()
    there = [SimpleNamespace(platform="gpu", device_kind=f"NVIDIA {kind}") for kind in ("H100", "H100", "L4")]
    monkeypatch.setattr("dovetail.run.folder.devices", lambda: there)
    open_folder(tmp_path / "r", config(tmp_path)).close()
    first, second = json.loads((tmp_path / "r" / "environment.json").read_text())
    assert (first["backend"], first["devices"]) == ("cpu", {"cpu": 1})
    assert (second["backend"], second["devices"]) == ("gpu", {"NVIDIA H100": 2, "NVIDIA L4": 1})


def begun(tmp_path, steps, checkpoint, *overrides):
    """The folder of a run that has come to a checkpoint."""
    open_folder(tmp_path / "r", config(tmp_path, f"train.steps={steps}", *overrides)).close()
    (tmp_path / "r" / "checkpoints" / "steps" / str(checkpoint)).mkdir(parents=True)
    return tmp_path / "r"


def again(tmp_path, steps, *overrides):
    folder = open_folder(tmp_path / "r", config(tmp_path, f"train.steps={steps}", *overrides))
    folder.close()
    return folder


def test_a_run_goes_on_to_more_steps_and_says_so_in_its_record(tmp_path):
    folder = begun(tmp_path, 100, 130, "sft.steps=30")
    first = json.loads((folder / "run.json").read_text())["run_id"]
    opened = again(tmp_path, 200, "sft.steps=30")
    assert opened.ends == (100,)
    assert load(folder / "config.gin", trusted=True).train.steps == 200
    record = json.loads((folder / "run.json").read_text())
    assert record["run_id"] == opened.run_id != first
    assert record["extended"] == [{"run_id": first, "from": 100, "to": 200, "after": 100}]
    assert again(tmp_path, 200, "sft.steps=30").ends == (100,), "the same command resumes it"
    assert follow_folder(folder, config(tmp_path, "train.steps=200", "sft.steps=30")).ends == (100,)


def test_a_run_that_had_not_come_to_its_end_has_none_there(tmp_path):
    begun(tmp_path, 100, 60)
    assert again(tmp_path, 200).ends == ()
    assert again(tmp_path, 80).ends == ()


@pytest.mark.parametrize(
    ("staleness", "done", "steps", "said"),
    [
        (0, 60, 59, "train.steps = 59: the run in '.*r' has done 60 of 100 steps; set 60 or more, or choose another"),
        (2, 60, 61, "has done 60 of 100 steps and may have sampled 2 more; set 62 or more"),
        (2, 100, 99, "has done 100 of 100 steps; set 100 or more"),
    ],
)
def test_a_run_cannot_have_fewer_steps_than_it_has_done(staleness, done, steps, said, tmp_path):
    ahead = (f"train.staleness={staleness}", "train.correction=['tis_token']")
    begun(tmp_path, 100, done, *ahead)
    with pytest.raises(RunError, match=said):
        again(tmp_path, steps, *ahead)


def test_only_the_number_of_steps_may_change(tmp_path):
    begun(tmp_path, 100, 60)
    with pytest.raises(RunError, match=r"belongs to run .*: train.steps = 100 -> 200; train.lr = 0.0001 -> 0.5"):
        again(tmp_path, 200, "train.lr=0.5")


def test_a_kill_between_the_two_files_leaves_a_run_that_goes_on(tmp_path):
    folder = begun(tmp_path, 100, 60)
    before = (folder / "config.gin").read_bytes()
    again(tmp_path, 200)
    (folder / "config.gin").write_bytes(before)
    again(tmp_path, 200)
    assert load(folder / "config.gin", trusted=True).train.steps == 200


@pytest.mark.parametrize("damaged", [3, [3], [{}], [{"from": "a", "to": 2, "after": 1}]])
def test_a_record_of_changes_that_no_run_has_written_is_refused(damaged, tmp_path):
    folder = begun(tmp_path, 100, 60)
    record = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(record | {"extended": damaged}))
    with pytest.raises(RunError, match=r"run.json' has other 'extended' than a run writes; restore it"):
        again(tmp_path, 100)
