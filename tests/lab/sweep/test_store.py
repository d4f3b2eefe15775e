"""A sweep's folder: states from files and locks only, one owner at a time, nothing lost, nothing silently repaired."""

import json

import attrs
import pytest

from dovetail.cli import main
from dovetail.config import load
from dovetail.config.located import begun_in
from dovetail.errors import RunError
from dovetail_lab.sweep import Planned, Point, Space, Store, Trial, plan_trials
from dovetail_lab.sweep.state import State
from dovetail_lab.sweep.store import CLAIM


def planned(*values: float, seed: int = 0) -> Planned:
    trials = [
        Trial(overrides=(f"train.lr={v}",), seed=seed, id=f"{i:010x}-s{seed}", group="g") for i, v in enumerate(values)
    ]
    config = load(None)
    points = {Point(trial.overrides, seed): trial for trial in trials}
    return Planned(base=config, trials=tuple(trials), configs={t.id: config for t in trials}, by_point=points)


def about(*values: float) -> dict:
    return {"space": Space(grid={"train.lr": values}).describe()}


@pytest.fixture
def store(tmp_path) -> Store:
    return Store.create(tmp_path / "sweep", planned(0.1, 0.2), about(0.1, 0.2))


def finish(store: Store, trial: Trial) -> None:
    """Write the files of a run that has ended."""
    (store.folder(trial) / "run.json").write_text(json.dumps({"run_id": trial.id}))
    (store.folder(trial) / "metrics.jsonl").write_text('{"phase": "rl", "step": 1, "reward/mean": 0.5}\n')
    with store.claim(trial):
        store.settle(trial, "done")


def test_its_trials_are_made_and_planned_again_from_another_folder_with_the_same_files(tmp_path, monkeypatch):
    work, elsewhere = tmp_path / "work", tmp_path / "elsewhere"
    work.mkdir()
    elsewhere.mkdir()
    (work / "data.jsonl").write_text('{"prompt": "2 + 3 = ", "answer": "5"}\n')
    sets = ["train.task=records", "task.records.path=data.jsonl"]
    points = [Point((f"train.lr={value}",), 0) for value in (0.1, 0.2)]
    monkeypatch.chdir(work)
    there = plan_trials(None, sets, points)
    store = Store.create(work / "sweep", there, about(0.1, 0.2))
    monkeypatch.chdir(elsewhere)
    configs = [load(store.folder(trial) / "config.gin") for trial in store.trials]
    with begun_in(store.path):
        here = plan_trials(None, sets, points)
    assert here.trials == there.trials
    for config in (*configs, *here.configs.values()):
        assert config.choice("train.task").used["path"] == f"{work}/data.jsonl"


def test_a_trial_goes_through_its_states(store):
    first, second = store.trials
    assert store.state(first).status == "waiting"
    with store.claim(first) as state:
        assert state.attempts == 1
        assert store.state(first).status == "running"
    assert store.state(first).status == "interrupted"
    finish(store, first)
    assert store.state(first).status == "done"
    assert store.state(first).attempts == 2
    assert store.state(second).status == "waiting"


def test_a_claim_and_a_drive_are_exclusive(store):
    trial = store.trials[0]
    with store.claim(trial), pytest.raises(RunError, match="in use by another process"), store.claim(trial):
        pass
    with store.drive(), pytest.raises(RunError, match="in use by another process"), store.drive():
        pass


def test_the_same_trials_open_the_folder_again(store):
    assert Store.create(store.path, planned(0.1, 0.2), about(0.1, 0.2)).trials == store.trials


def test_a_changed_space_is_refused_with_the_difference(store):
    other = attrs.evolve(planned(0.1, 0.3), trials=(planned(0.1).trials[0],))
    with pytest.raises(RunError) as caught:
        Store.create(store.path, other, about(0.1, 0.3))
    assert "grid: {'train.lr': ['0.1', '0.2']} -> {'train.lr': ['0.1', '0.3']}" in str(caught.value)
    assert "lr=0.2 seed=0" in str(caught.value)


def test_more_trials_are_refused_unless_meant(store):
    more = planned(0.1, 0.2, 0.3)
    with pytest.raises(RunError, match=r"has 2 trials, this command has 1 more: .*lr=0.3.* Say --extend"):
        Store.create(store.path, more, about(0.1, 0.2, 0.3))
    assert len(Store.create(store.path, more, about(0.1, 0.2, 0.3), extend=True).trials) == 3


@pytest.mark.parametrize(
    ("file", "text", "reason"),
    [
        ("state.json", "{", "state.json: not valid JSON: Expecting"),
        ("state.json", '{"stats": 1}', "state.json"),
        ("run.json", "not json", "run.json: not valid JSON: Expecting"),
        ("run.json", '{"run_id": "other-s0"}', "run.json belongs to run other-s0"),
        ("run.json", None, "run.json is gone"),
        ("metrics.jsonl", None, "metrics.jsonl is gone"),
    ],
)
def test_a_corrupt_folder_is_named_and_set_aside(store, file, text, reason):
    trial = store.trials[0]
    finish(store, trial)
    damaged = store.folder(trial) / file
    damaged.unlink() if text is None else damaged.write_text(text)
    state = store.state(trial)
    assert state.status == "corrupt"
    assert reason in state.reason
    aside = store.set_aside(trial)
    assert aside.is_dir()
    store.prepare(trial, load(None))
    assert store.state(trial).status == "waiting"
    assert store.set_aside(trial) != aside


def test_a_line_that_is_being_written_is_left_for_later(store):
    trial = store.trials[0]
    lines = '{"phase": "sft", "step": 1, "x": 9}\n{"phase": "rl", "step": 1, "x": 0.5}\n{"phase": "rl", "st'
    (store.folder(trial) / "metrics.jsonl").write_text(lines)
    assert store.curve(trial, "x") == [(1, 0.5)]


def test_trials_are_found_by_what_is_unique_of_their_id(store):
    first, second = store.trials
    assert store.find("0000000000-") == first
    assert store.find(second.id) == second
    with pytest.raises(RunError, match="names 2 trials"):
        store.find("0000")
    with pytest.raises(RunError, match=r"names no trial .* Did you mean '0000000001-s0'"):
        store.find("0000000001-s1")


def test_a_folder_that_is_no_sweep_names_those_beside_it(store, tmp_path):
    with pytest.raises(RunError, match=r"is not a sweep folder .* Did you mean 'sweep'"):
        Store.open(tmp_path / "sweeep")


def test_a_request_ends_with_the_trial(store):
    trial = store.trials[0]
    store.ask_to_stop(trial, "killed", "because")
    assert store.asked_to_stop(trial) == ("killed", "because")
    with store.claim(trial):
        store.settle(trial, *store.asked_to_stop(trial))
    assert store.asked_to_stop(trial) is None
    assert attrs.evolve(store.state(trial), started=None, ended=None, pid=0, host="") == State(
        status="killed", attempts=1, reason="because"
    )


def test_the_claim_is_a_lock_and_no_record(store):
    trial = store.trials[0]
    with store.claim(trial):
        pass
    assert (store.folder(trial) / CLAIM).read_text() == ""


def test_a_strangers_labels_do_not_reach_the_terminal(store, capsys):
    record = store.path / "sweep.json"
    record.write_text(record.read_text().replace("train.lr=0.1", r"train.lr=\u001b]0;owned\u0007"))
    assert main(["sweep", "status", str(store.path)]) == 0
    shown = capsys.readouterr().out
    assert "owned" in shown
    assert not {"\x1b", "\x07"} & set(shown)


def checkpoints(store: Store, trial: Trial, *numbers: int) -> None:
    for number in numbers:
        (store.folder(trial) / "checkpoints" / "steps" / str(number)).mkdir(parents=True)


def numbers(store: Store, trial: Trial) -> list[int]:
    return sorted(int(each.name) for each in store.folder(trial).glob("checkpoints/steps/*"))


def attempt(store: Store) -> None:
    for trial in store.trials:
        with store.claim(trial):
            pass


@pytest.mark.parametrize(
    ("there", "left"),
    [
        (([3, 6], [3]), ([3], [3])),
        (([3, 6], [3, 6]), ([3, 6], [3, 6])),
        (([3], []), ([], [])),
        (([6, 9], [3]), ([6, 9], [3])),
        (([6, 9], []), ([6, 9], [])),
    ],
)
def test_trials_that_are_trained_as_one_go_on_from_the_same_checkpoint(store, there, left):
    """So that a kill between their checkpoints does not change what is stacked with what."""
    for trial, each in zip(store.trials, there, strict=True):
        checkpoints(store, trial, *each)
    attempt(store)
    store.level(store.trials, lambda trial: store.prepare(trial, load(None)))
    assert tuple(numbers(store, trial) for trial in store.trials) == left
    assert all((store.folder(trial) / "config.gin").exists() for trial in store.trials)


def test_a_trial_that_joins_others_takes_nothing_from_them(store):
    first, _ = store.trials
    checkpoints(store, first, 3)
    with store.claim(first):
        pass
    store.level(store.trials, lambda trial: None)
    assert numbers(store, first) == [3]
