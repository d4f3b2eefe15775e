"""A run that fails: the state that it saves first, and how it resumes."""

import pytest
from tests.core.train.test_loop import assert_same_parameters
from tests.core.train.tiny import TINY

from dovetail.config import load
from dovetail.errors import RunError
from dovetail.run.summary import series
from dovetail.train.learner import Learner
from dovetail.train.loop import train
from dovetail_lab.evaluation.evaluate import Evaluator
from dovetail_rollout.rollout.vanilla import VanillaEngine

SIZES = ("sft.steps=0", "train.steps=5", "run.checkpoint_every=99", "eval.every=2", "eval.examples=2")
REMEMBERS = ("train.kl_coef=0.05", "train.kl_controller=adaptive")


def run(folder):
    return train(load(None, [*TINY, *SIZES, *REMEMBERS]), folder)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The folder of a run that does not fail."""
    folder = tmp_path_factory.mktemp("runs") / "undisturbed"
    run(folder)
    return folder


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "disturbed"


FAILS = {
    "sampling": (VanillaEngine, "generate", lambda: RunError("lost")),
    "handing over": (VanillaEngine, "sync", lambda: RunError("lost")),
    "evaluation": (Evaluator, "__call__", lambda: RunError("lost")),
    "update": (Learner, "_update", lambda: RuntimeError("out of memory")),
    "interrupted": (VanillaEngine, "generate", KeyboardInterrupt),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "kept"), [("sampling", 3), ("handing over", 4), ("evaluation", 4), ("update", 0), ("interrupted", 3)]
)
def test_the_last_good_state_is_saved_and_the_run_goes_on_from_it(
    undisturbed, folder, monkeypatch, capsys, where, kept
):
    """It fails in the fourth of five steps. An update donates the previous state, and has no valid one until it ends."""
    owner, name, error = FAILS[where]
    call = getattr(owner, name)

    def failing(self, *arguments, **options):
        if len(series(folder, "reward/mean")) >= (4 if where == "evaluation" else 3):
            raise error()
        return call(self, *arguments, **options)

    monkeypatch.setattr(owner, name, failing)
    with pytest.raises((RunError, RuntimeError, KeyboardInterrupt)):
        run(folder)
    assert (f"saved the state after rl step {kept}" in capsys.readouterr().err) is (kept > 0)
    assert [path.name for path in (folder / "checkpoints" / "steps").iterdir()] == [str(kept)] * (kept > 0)
    monkeypatch.undo()
    run(folder)
    assert (folder / "metrics.jsonl").read_bytes() == (undisturbed / "metrics.jsonl").read_bytes()
    assert_same_parameters(folder, undisturbed)
