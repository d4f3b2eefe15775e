"""A run that fails: the state that it saves first, and how it resumes."""

import attrs
import pytest
from tests.core.training.test_loop import assert_same_parameters
from tests.core.training.tiny import TINY

import dovetail
from dovetail.config import load
from dovetail.errors import RunError
from dovetail.run.files import read_lines
from dovetail.run.summary import series
from dovetail.training.learner import Learner
from dovetail.training.loop import train
from dovetail_lab.evaluation.evaluate import Evaluator
from dovetail_rollout.rollout.vanilla import VanillaEngine

SIZES = ("sft.steps=0", "train.steps=5", "run.checkpoint_every=99", "eval.every=2", "eval.examples=2")
REMEMBERS = ("train.kl_coef=0.05", "train.kl_controller=adaptive")


@attrs.frozen(kw_only=True)
class Told:
    """A sink that is told of steps and of evaluations, and may fail at either."""

    def open(self, folder, total_steps, start_step):
        """Need nothing."""
        return self

    def write(self, step, metrics):
        """Tell one from the other."""
        (self.of_evaluation if any(name.startswith("eval/") for name in metrics) else self.of_step)()

    def of_step(self):
        """Do nothing."""

    def of_evaluation(self):
        """Do nothing."""

    def close(self):
        """Have nothing to close."""


def run(folder, *more, **options):
    return train(load(None, [*TINY, *SIZES, *REMEMBERS, *more]), folder, **options)


@pytest.fixture(autouse=True)
def told():
    """The setting with which a run tells the sink."""
    dovetail.register("sink", "told", Told)
    return ("run.sinks=('told',)",)


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
    "telling of a step": (Told, "of_step", lambda: RunError("lost")),
    "telling of an evaluation": (Told, "of_evaluation", lambda: RunError("lost")),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "kept"),
    [
        ("sampling", 3),
        ("handing over", 4),
        ("evaluation", 4),
        ("update", 0),
        ("interrupted", 3),
        ("telling of a step", 3),
        ("telling of an evaluation", 4),
    ],
)
def test_the_last_good_state_is_saved_and_the_run_goes_on_from_it(
    undisturbed, folder, told, monkeypatch, capsys, where, kept
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
        run(folder, *told)
    assert (f"saved the state after rl step {kept}" in capsys.readouterr().err) is (kept > 0)
    assert [path.name for path in (folder / "checkpoints" / "steps").iterdir()] == [str(kept)] * (kept > 0)
    monkeypatch.undo()
    run(folder, *told)
    for name in ("metrics.jsonl", "eval.jsonl", "samples.jsonl"):
        assert (folder / name).read_bytes() == (undisturbed / name).read_bytes()
    assert_same_parameters(folder, undisturbed)


def test_a_sink_that_fails_in_the_warm_start_loses_no_step(folder, told, monkeypatch, capsys):
    def failing(self):
        if len(read_lines(folder / "metrics.jsonl")) == 2:
            raise RunError("lost")

    warm = (*told, "sft.steps=3")
    monkeypatch.setattr(Told, "of_step", failing)
    with pytest.raises(RunError, match="lost"):
        run(folder, *warm, only_sft=True)
    assert "saved the state after sft step 2" in capsys.readouterr().err
    monkeypatch.undo()
    run(folder, *warm, only_sft=True)
    assert [line["step"] for line in read_lines(folder / "metrics.jsonl", "sft")] == [1, 2, 3]
