"""A population of real runs: one that is never replaced is the run that it is alone, and a copy goes on from its parent's weights."""

import json
from pathlib import Path

import pytest
from tests.core.training.tiny import TINY
from tests.lab.sweep.test_worker import Here

from dovetail.config import load_experiment
from dovetail.training.loop import train
from dovetail_executor.executor.local import Local
from dovetail_lab.sweep import Store
from dovetail_lab.sweep.commands import perform
from dovetail_lab.sweep.request import Request

SETS = (
    *TINY,
    "train.max_prompt_tokens=15",  # a shape of its own: runs of one process share what they compile
    "sft.steps=2",
    "train.steps=4",
    "run.checkpoint_every=2",
    "sweep.sampler='pbt'",
    "sweep.draws=4",
    "sweep.random={'train.lr': 'loguniform(1e-4,1e-2)'}",
    "sweep.metric='reward/mean'",
    "sampler.pbt.interval=2",
)


@pytest.mark.slow
def test_a_population_is_made_of_the_runs_that_its_members_are_alone(tmp_path, monkeypatch):
    executor = Here()
    monkeypatch.setattr(Local, "open", lambda self, sweep, jobs: executor.open(sweep, jobs))
    (tmp_path / "mine.gin").write_text("")
    settings, choices = load_experiment("sweep", tmp_path / "mine.gin", SETS)
    request = Request(
        path=tmp_path / "mine.gin", overrides=SETS, settings=settings, choices=choices, folder=tmp_path / "s"
    )
    store, counts = perform(request)
    assert counts == {"done": 4, "pruned": 1}
    first, *others = [compiled for _, compiled in executor.jobs]
    assert first
    more = {name for compiled in others for name in compiled}
    assert more <= {"jit(_begin)", "jit(_extend)", "jit(__call__)"}, (
        "nothing but sampling, for prompts of another length"
    )
    (heir,) = [trial for trial in store.trials if (store.folder(trial) / "ancestor.json").exists()]
    parent = store.find(json.loads((store.folder(heir) / "ancestor.json").read_text())["trial"])
    alone = tmp_path / "alone"
    train(_config(store, parent), alone)
    assert metrics(store.folder(parent)) == metrics(alone), "to the byte"
    mine, theirs = metrics(store.folder(heir)), metrics(alone)
    assert mine[:4] == theirs[:4], "two steps of the warm start and two of reinforcement learning are the parent's"
    assert json.loads(mine[4])["reward/mean"] == json.loads(theirs[4])["reward/mean"], "sampled with the same weights"
    assert mine[5:] != theirs[5:]


def _config(store: Store, trial):
    from dovetail.config import load

    return load(store.folder(trial) / "config.gin")


def metrics(folder: Path) -> list[str]:
    return (folder / "metrics.jsonl").read_text().splitlines()
