"""Models of other roles in whole runs: their initial weights, their followers, and their part of a checkpoint."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from tests.core.training.cut_off import cut_off
from tests.core.training.test_loop import assert_same_parameters
from tests.core.training.tiny import TINY

import dovetail
from dovetail.config import load
from dovetail.errors import DovetailError
from dovetail.registry import current
from dovetail.run.files import read_lines
from dovetail.run.summary import series
from dovetail.training.loop import train

FIXTURES = Path(__file__).parents[2] / "fixtures" / "models"
DECAY = 0.8


def exported(folder: Path, *overrides: str, of: Path | None = None) -> Path:
    """A model folder as `dovetail export` leaves it: a decoder of its own size, with the tokenizer of the task."""
    config = load(of, [*TINY, "model.decoder.width=24", "model.decoder.heads=3", *overrides])
    task: Any = config.choice("train.task").bind()
    tokenizer: Any = config.choice("train.tokenizer").bind()
    tokenizer = tokenizer.make(task.corpus())
    maker: Any = config.choice("train.model").bind()
    maker.export(maker.make(tokenizer.vocab_size, rngs=nnx.Rngs(7)), folder, adapter=False)
    tokenizer.save(folder)
    return folder


def of_teacher(folder: Path) -> list[str]:
    return ["roles.teacher=frozen", "teacher.model=pretrained", f"teacher/model.pretrained.path={str(folder)!r}"]


BRIEF = ("sft.steps=2", "train.steps=3", "eval.every=3", "eval.examples=2", "run.checkpoint_every=1")
FOLLOWING = (
    *BRIEF,
    "run.keep_checkpoints=9",
    "train.kl_coef=0.1",
    "roles.reference=renewed",
    "reference/follower.renewed.every=2",
    "roles.average=ema",
    f"average/follower.ema.decay={DECAY}",
    "train.loss_terms=['gkd', 'reverse_kl', 'nll', 'near_average']",
    "loss_term.nll.coef=0.5",
    "field.jensen_shannon.beta=0.25",
)


def near_average(logps, average_logps, mask):
    """Half the squared log-ratio to a moving average of the policy."""
    return jnp.where(mask, 0.5 * jnp.square(jnp.where(mask, logps - average_logps, 0.0)), 0.0)


@pytest.fixture(scope="module")
def teacher(tmp_path_factory) -> Path:
    return exported(tmp_path_factory.mktemp("models") / "teacher")


@pytest.fixture(scope="module")
def run(teacher):
    """Train with every kind of role at once; the same again where the folder is the same."""

    def start(folder: Path, *overrides: str) -> dict[str, float]:
        current().remove("session")
        dovetail.register("loss_term", "near_average", near_average)
        return train(load(None, [*TINY, *FOLLOWING, *of_teacher(teacher), *overrides]), folder)

    return start


@pytest.fixture(scope="module")
def finished(run, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "undisturbed"
    run(folder)
    return folder


def states(folder: Path) -> dict[int, Any]:
    """Return the contents of each checkpoint: policy, critic, memory, roles."""
    import orbax.checkpoint as ocp

    with ocp.CheckpointManager(folder / "checkpoints" / "steps") as manager:
        arguments = ocp.args.Composite(state=ocp.args.StandardRestore())
        return {step: manager.restore(step, args=arguments)["state"] for step in manager.all_steps()}


@pytest.mark.slow
def test_every_term_is_reported(finished):
    lines = [line for line in read_lines(finished / "metrics.jsonl") if "reward/mean" in line]
    terms = ("gkd", "reverse_kl", "nll", "near_average")
    assert all(np.isfinite(line[f"loss_term/{term}/mean"]) for line in lines for term in terms)
    assert lines[0]["loss_term/near_average/mean"] == pytest.approx(0.0, abs=1e-9), "the average begins as the policy"
    assert lines[-1]["loss_term/near_average/mean"] > 0
    assert all(line["loss_term/gkd/mean"] > 0 for line in lines)


@pytest.mark.slow
def test_the_average_is_that_of_the_policies_so_far(finished):
    found = states(finished)
    begun = found[2]["params"]  # after the two steps of the warm start
    average = begun
    for step in (3, 4, 5):
        policy, roles = found[step][0]["params"], found[step][3]
        average = jax.tree.map(lambda w, theta: DECAY * w + (1 - DECAY) * theta, average, policy)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7), roles["average"], average)


@pytest.mark.slow
def test_the_reference_is_renewed_every_other_step(finished):
    found = states(finished)
    jax.tree.map(np.testing.assert_array_equal, found[3][3]["reference"], found[2]["params"])
    for step in (4, 5):
        jax.tree.map(np.testing.assert_array_equal, found[step][3]["reference"], found[4][0]["params"])


@pytest.mark.slow
def test_what_never_changes_is_not_saved_again(finished):
    assert set(states(finished)[5][3]) == {"average", "reference"}


@pytest.mark.slow
def test_a_run_that_stops_goes_on_bit_for_bit(finished, run, tmp_path):
    folder = tmp_path / "disturbed"
    with cut_off(2):
        run(folder)
    run(folder)
    assert (folder / "metrics.jsonl").read_bytes() == (finished / "metrics.jsonl").read_bytes()
    assert_same_parameters(folder, finished)


@pytest.mark.slow
def test_where_the_models_wait_between_their_uses_changes_nothing(finished, run, tmp_path):
    run(tmp_path, "memory.reference=host")
    assert (tmp_path / "metrics.jsonl").read_bytes() == (finished / "metrics.jsonl").read_bytes()


REFUSED = {
    "a teacher with fewer ids": (
        [f"teacher/model.pretrained.path={str(FIXTURES / 'qwen2')!r}"],
        r"teacher\.model: .*/qwen2: the tokenizer has \d+ ids and the embedding 32 rows",
    ),
    "a folder that is not there": (
        ["teacher/model.pretrained.path='/nowhere'"],
        r"teacher\.model: /nowhere: is not a folder",
    ),
    "a model of its own that is to follow": (
        ["roles.teacher=ema"],
        r"roles\.teacher = 'ema' follows the policy, so its weights must be the policy's; set teacher\.model to None",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_teacher_that_does_not_fit_is_refused_before_anything_is_trained(teacher, tmp_path, case):
    overrides, message = REFUSED[case]
    config = load(None, [*TINY, *of_teacher(teacher), "train.loss_terms=['reverse_kl']", *overrides])
    with pytest.raises(DovetailError, match=message) as caught:
        train(config, tmp_path)
    assert "\n" not in str(caught.value)
    assert read_lines(tmp_path / "metrics.jsonl") == []


def test_a_teacher_with_another_tokenizer_is_refused_before_anything_is_trained(tmp_path):
    other = exported(tmp_path / "other", "task.arithmetic.template='how much is {question}?'")
    config = load(None, [*TINY, *of_teacher(other), "train.loss_terms=['reverse_kl']"])
    with pytest.raises(DovetailError, match=r"teacher\.model: .*: its tokenizer is not the run's: ") as caught:
        train(config, tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert series(tmp_path / "run", "sft/loss") == []


@pytest.mark.parametrize(
    ("overrides", "hint"),
    [
        (["train.loss_terms=['reverse_kl']"], "roles.teacher = 'frozen' would open the model role 'teacher'"),
        (["train.loss_terms=['gkd']"], "roles.teacher = 'frozen' would open the model role 'teacher'"),
    ],
)
def test_without_the_role_the_message_says_how_to_open_it(overrides, hint):
    with pytest.raises(DovetailError, match=re.escape(hint)):
        load(None, overrides)
