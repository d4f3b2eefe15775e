"""Groups beyond what a step needs serve the next steps: in order, with their age, and also after a kill."""

from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from tests.core.training.cut_off import cut_off
from tests.core.training.test_episodes import GUESSING, short
from tests.core.training.test_loop import assert_same_parameters
from tests.core.training.tiny import TINY
from tests.rollout.test_ahead import CORRECTED, WRITTEN, newest

import dovetail
from dovetail.config import load
from dovetail.errors import ConfigError, PlanError
from dovetail.run.checkpoint import Checkpoints
from dovetail.run.files import read_lines
from dovetail.training.drawing import Drawing
from dovetail.training.loop import train

STEPS, WANTED, MORE = 6, 4, 4
AHEAD = ("train.staleness=1", "train.curriculum=difficulty")
OWN = (*TINY, "train.steps=", "eval.", "run.", "sft.")
EPISODES = tuple(each for each in GUESSING if not each.startswith(OWN))


def odd_starts(tokens, group_ids):
    """Keep groups whose first completion starts with an odd id: about half of them."""
    import jax.numpy as jnp

    return jnp.repeat(tokens[::4, 0] % 2 == 1, 4, total_repeat_length=len(group_ids))


def by_version(versions):
    """A loss mask that reads the field."""
    return 1.0 / (1.0 + versions.astype("float32"))


def config(*overrides: str):
    if "odd_starts" not in dovetail.names("group_filter"):
        dovetail.register("group_filter", "odd_starts", odd_starts)
        dovetail.register("loss_mask", "by_version", by_version)
        dovetail.register("reward", "short", short)
    chosen = ("train.group_filter=odd_starts", f"train.oversample={MORE}", "train.loss_mask=by_version")
    sizes = (f"train.steps={STEPS}", "run.checkpoint_every=1", "run.keep_checkpoints=9", "eval.every=None")
    return load(None, [*CORRECTED, *chosen, *sizes, *overrides])


@attrs.frozen
class Seen:
    """A run: its folder, the prompts that passed the filter and those that were used, and the versions of each step."""

    folder: Path
    more: tuple[str, ...]
    passed: list[str] = attrs.field(factory=list)
    used: list[str] = attrs.field(factory=list)
    versions: list[np.ndarray] = attrs.field(factory=list)

    @property
    def steps(self) -> list[dict[str, Any]]:
        lines = read_lines(self.folder / "metrics.jsonl", "rl")
        return [{name.removeprefix("group_filter/"): value for name, value in line.items()} for line in lines]


CASES = [(), pytest.param(AHEAD, marks=pytest.mark.slow), pytest.param(EPISODES, marks=pytest.mark.slow)]


@pytest.fixture(scope="module", params=CASES, ids=["in turn", "ahead", "episodes"])
def undisturbed(request, tmp_path_factory):
    seen = Seen(tmp_path_factory.mktemp("runs"), request.param)
    keep, sample, batch = Drawing._keep, Drawing._sample, Drawing._batch

    def keeping(drawing, sampled, *rest):
        good = keep(drawing, sampled, *rest)
        seen.passed.extend(e["prompt"] for e, kept in zip(sampled.completed.examples, good, strict=True) if kept)
        return good

    def sampling(drawing, *rest):
        found = sample(drawing, *rest)
        seen.used.extend(example["prompt"] for example in found[0].completed.examples)
        return found

    def making(drawing, *rest):
        found = batch(drawing, *rest)
        seen.versions.append(found.fields["versions"].reshape(WANTED, -1))
        return found

    with pytest.MonkeyPatch.context() as patch:
        for name, replacement in (("_keep", keeping), ("_sample", sampling), ("_batch", making)):
            patch.setattr(Drawing, name, replacement)
        train(config(*request.param), seen.folder)
    return seen


def test_every_group_is_accounted_for(undisturbed):
    before = 0
    for line in undisturbed.steps:
        assert before + line["drawn"] == line["used"] + line["over"] + line["refused"]
        assert line["drawn"] == line["rounds"] * (WANTED + MORE)
        assert line["used"] == WANTED, "so many rounds are enough here"
        assert line["over"] <= WANTED + MORE - 1
        before = line["over"]


def test_no_group_that_passed_is_lost_or_used_twice_and_they_keep_their_order(undisturbed):
    assert len(undisturbed.used) == STEPS * WANTED
    assert undisturbed.used == undisturbed.passed[: len(undisturbed.used)]


def test_a_group_left_over_has_the_version_that_sampled_it(undisturbed):
    """Those left over come first, and what is sampled for step n has version n - k."""
    lag, before = int("train.staleness=1" in undisturbed.more), 0
    for number, (line, versions) in enumerate(zip(undisturbed.steps, undisturbed.versions, strict=True)):
        assert (versions == versions[:, :1]).all()
        own, older = max(0, number - lag), min(WANTED, int(before))
        assert (versions[older:] == own).all()
        assert (versions[:older] < max(own, 1)).all()
        assert line["staleness/max"] == number - versions.min() <= lag + 2
        before = line["over"]
    assert any(versions.min() < versions.max() for versions in undisturbed.versions)


@pytest.mark.slow
def test_a_run_goes_on_bit_for_bit_with_the_groups_left_over(undisturbed, tmp_path):
    step = next(number for number, line in enumerate(undisturbed.steps[:-2], 1) if line["over"])
    with cut_off(step + 1):
        train(config(*undisturbed.more), tmp_path)
    assert newest(tmp_path)[0] == step
    checkpoints = Checkpoints(tmp_path / "checkpoints", None)
    found = checkpoints.newest()
    checkpoints.close()
    assert found
    assert "over" in found[1].data
    train(config(*undisturbed.more), tmp_path)
    for name in WRITTEN:
        assert (tmp_path / name).read_bytes() == (undisturbed.folder / name).read_bytes(), name
    assert_same_parameters(tmp_path, undisturbed.folder)


@pytest.mark.parametrize(
    ("overrides", "error", "message"),
    [
        (["train.oversample=-1"], ConfigError, r"train.oversample.*-1"),
        (
            ["train.group_filter=None"],
            PlanError,
            r"train.oversample = 4 \(--set train.oversample=4\) .*without train.group_filter none is rejected; set it"
            ".*nonzero_variance",
        ),
        (
            ["train.correction=()"],
            PlanError,
            r"train.oversample = 4 .*keeps groups for later steps.*no chosen component reads 'rollout_logps'.*tis_token",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_loaded(overrides, error, message):
    with pytest.raises(error, match=message):
        config(*overrides)
