"""Sampling ahead of the updates: results independent of timing, resuming in every state of the channels, refusals."""

import errno
import time
from itertools import pairwise
from pathlib import Path
from threading import Event
from types import MappingProxyType, SimpleNamespace
from typing import Any, ClassVar

import attrs
import pytest
from orbax.checkpoint import CheckpointManager
from tests.core.training.cut_off import cut_off
from tests.core.training.several import ended, start
from tests.core.training.test_loop import assert_same_parameters
from tests.core.training.tiny import TINY
from tests.sampled import sampled

import dovetail
from dovetail.config import load
from dovetail.errors import ConfigError, PlanError, RewardError, RunError
from dovetail.host.sampling import Sampler
from dovetail.run.blocks import blocks
from dovetail.run.checkpoint import Checkpoints
from dovetail.run.files import read_lines
from dovetail.run.journal import CLOCKED, FILES, MESSAGES, Journal
from dovetail.run.summary import series
from dovetail.spans import Span
from dovetail.training.drawing import Drawing
from dovetail.training.learner import Learner
from dovetail.training.loop import train
from dovetail.training.metrics import Clock
from dovetail.training.order import Task, tasks
from dovetail_memory.cost import estimate
from dovetail_rollout.ahead import Ahead
from dovetail_rollout.rollout.vanilla import Vanilla, VanillaEngine

K, STEPS = 2, 6
CORRECTED = (*TINY, "sft.steps=0", "eval.examples=2", "train.correction=['tis_token']")
BESIDE = (
    *CORRECTED,
    f"train.staleness={K}",
    f"train.steps={STEPS}",
    "run.checkpoint_every=1",
    "run.keep_checkpoints=9",
    "train.curriculum=difficulty",
    "train.group_filter=nonzero_variance",
    "train.refill_rounds=1",
    "train.replay=recent",
    "replay.recent.groups=2",
    "train.advantage=remax",
)
WRITTEN = tuple(name for name in FILES if name not in CLOCKED)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "undisturbed"
    run(folder)
    return folder


def run(folder: Path, *overrides: str) -> dict[str, float]:
    return train(load(None, [*BESIDE, *overrides]), folder)


def assert_same_run(folder: Path, other: Path) -> None:
    for name in WRITTEN:
        assert (folder / name).read_bytes() == (other / name).read_bytes(), name
    assert_same_parameters(folder, other)


def test_batch_n_is_drawn_with_the_weights_of_n_minus_k(undisturbed):
    ages = [min(n, K) for n in range(STEPS)]
    for name in ("staleness/mean", "staleness/max"):
        assert [value for _, value in series(undisturbed, name)] == ages
    lines = [(line["step"], "eval/accuracy" in line) for line in read_lines(undisturbed / "metrics.jsonl")]
    assert [step for step, is_eval in lines if is_eval] == [0, 2, 4, 6]
    assert [step for step, is_eval in lines if not is_eval] == [1, 2, 3, 4, 5, 6]


def test_what_ran_when_is_measured_apart_from_what_came_of_it(undisturbed):
    timings = [line for line in read_lines(undisturbed / "timings.jsonl") if "time/update" in line]
    for line in timings:
        assert {"queue", "sampler/rollout", "sampler/reward", "time/channel", "sampler/channel"} <= line.keys()
        assert 0 <= line["idle/trainer"] <= 1
        assert 0 <= line["idle/sampler"] <= 1
    names = set().union(*timings) | set().union(*read_lines(undisturbed / "metrics.jsonl"))
    documented = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
    known = ("compile/", "memory/", "loss_mask/", "reward/", "policy_loss/", "advantage/", "eval/", "curriculum/")
    assert [n for n in names - {"phase", "step"} if n not in documented and not n.startswith(known)] == []


@pytest.mark.slow
def test_nothing_is_compiled_after_the_second_step(tmp_path):
    """In a process of its own: what another run of this process has compiled would not be compiled again."""
    ((status, said),) = ended([start(tmp_path / "run", [], BESIDE)])
    assert status == 0, said
    lines = read_lines(tmp_path / "run" / "timings.jsonl", "rl")
    (second,) = [number for number, line in enumerate(lines) if line["step"] == 2 and "time/update" in line]
    assert any("compile/programs" in line for line in lines[: second + 1]), "it is counted"
    assert [line["compile/programs"] for line in lines[second + 1 :] if "compile/programs" in line] == []


def test_each_program_records_what_it_does_one_thing_after_the_other(undisturbed):
    lines = read_lines(undisturbed / "spans.jsonl", "rl")
    found = [Span(*span) for line in lines for span in line["spans"]]
    for program in ("sampler", "trainer"):
        own = sorted((span for span in found if span.program == program), key=lambda span: span.began)
        assert all(span.began <= span.ended for span in own)
        assert all(before.ended <= after.began for before, after in pairwise(own)), program
    steps = {name: [span.step for span in found if span.name == name] for name in ("update", "checkpoint", "eval")}
    assert steps["update"] == steps["checkpoint"] == [1, 2, 3, 4, 5, 6]
    assert steps["eval"] == [0, 2, 4, 6]
    taken = [span.step for span in found if (span.program, span.name) == ("sampler", "sync")]
    assert taken == [4, 2, 6, 4, 6], "taking weights is not waiting for them"
    assert sorted({span.step for span in found if span.name == "rollout"}) == [1, 2, 3, 4, 5, 6]


def fresher(staleness, versions, mask):
    """A loss mask that reads both fields, and reports them as metrics."""
    age = staleness.astype("float32")
    return 1.0 / (1.0 + age), {"staleness": age, "versions": versions.astype("float32")}


@pytest.mark.slow
def test_components_read_how_old_a_token_is(tmp_path):
    """Half of the groups of a step are from the previous step, and now one step older."""
    dovetail.register("loss_mask", "fresher", fresher)
    replayed = ("train.replay=recent", "replay.recent.groups=4", "replay.recent.capacity=4")
    ahead = ("train.staleness=1", "train.steps=4", "eval.every=None", "train.loss_mask=fresher")
    train(load(None, [*CORRECTED, *replayed, *ahead]), tmp_path)
    versions, ages = (dict(series(tmp_path, f"loss_mask/{name}")) for name in ("versions", "staleness"))
    assert [versions[step] + ages[step] for step in versions] == pytest.approx([0, 1, 2, 3])
    assert [ages[1], ages[2]] == [0, 1]
    assert 1 < ages[3] < 2
    assert 1 < ages[4] < 2


@pytest.mark.slow
def test_an_extended_run_begins_anew_to_sample_ahead(tmp_path):
    """No batch was sampled ahead of the earlier end, so the first ones after it have its weights."""
    for steps in (3, 6):
        train(load(None, [*CORRECTED, "train.staleness=2", f"train.steps={steps}", "eval.every=None"]), tmp_path)
    assert [age for _, age in series(tmp_path, "staleness/mean")] == [0, 1, 2, 0, 1, 2]


ALL = 99


class Pace:
    """Keeps the sampler's program at most `lead` messages ahead of the trainer's last one.

    Before every checkpoint it waits until the sampler is there, so that the contents of the checkpoint are known.
    """

    def __init__(self, monkeypatch, lead: int) -> None:
        self.lead, self.asked, self.over = lead, 0, False
        take, do, cut, close = Ahead.take, Drawing.do, Ahead.cut, Ahead.close
        order = tasks(STEPS, K, lambda version: version % 2 == 0)

        def taking(ahead, clock):
            self.asked = ahead.taken + 1
            return take(ahead, clock)

        def doing(drawing, task, clock):
            while order.index(task) >= self.asked + self.lead and not self.over:
                time.sleep(0.001)
            return do(drawing, task, clock)

        def cutting(ahead, version):
            within_reach = sum(task.version <= version for task in order)
            while True:
                found = cut(ahead, version)
                if found.taken + len(found.messages) >= min(max(self.asked, ahead.taken) + self.lead, within_reach):
                    return found
                time.sleep(0.001)

        def closing(ahead):
            self.over = True
            close(ahead)

        monkeypatch.setattr(Ahead, "take", taking)
        monkeypatch.setattr(Drawing, "do", doing)
        monkeypatch.setattr(Ahead, "cut", cutting)
        monkeypatch.setattr(Ahead, "close", closing)


@pytest.mark.parametrize("lead", [0, ALL], ids=["slow sampler", "slow trainer"])
def test_which_side_is_slower_changes_no_byte(undisturbed, tmp_path, monkeypatch, lead):
    Pace(monkeypatch, lead)
    run(tmp_path)
    assert_same_run(tmp_path, undisturbed)


def newest(folder: Path) -> tuple[int, list[str], list[int]]:
    """Return the newest checkpoint's number, its messages, and the versions of the older weights."""
    checkpoints = Checkpoints(folder / "checkpoints", None)
    found = checkpoints.newest()
    checkpoints.close()
    assert found is not None
    number, saved = found
    messages = ["eval" if "records" in values else "batch" for values in saved.data["messages"]]
    return number, messages, saved.data["weights"]


STATES = {
    0: ([], [0, 1]),
    1: (["batch"], [1]),
    2: (["batch", "batch"], []),
    3: (["batch", "batch", "eval"], []),
    4: (["batch", "batch", "eval", "batch"], []),
}
"""After two of six steps, by how far ahead the sampler's program is: batches 2 and 3, the evaluation of version 2, batch 4."""


@pytest.mark.parametrize("lead", sampled([3, 0, 1, 2, 4], every=len(STATES)))
def test_a_run_goes_on_bit_for_bit_from_every_state_of_the_channels(undisturbed, tmp_path, monkeypatch, lead):
    Pace(monkeypatch, lead)
    with cut_off(3):
        run(tmp_path)
    assert newest(tmp_path) == (2, *STATES[lead])
    monkeypatch.undo()
    run(tmp_path)
    assert_same_run(tmp_path, undisturbed)


FAILURES = {
    "reward": (Sampler, "score", RewardError("reward asked raised OSError: no answer")),
    "engine": (VanillaEngine, "generate", RunError("rollout engine 'asked' is lost: no answer")),
}


@pytest.mark.parametrize(("owner", "method", "error"), FAILURES.values(), ids=FAILURES)
def test_what_fails_ahead_of_the_trainer_ends_the_run_behind_the_last_batch(
    undisturbed, tmp_path, monkeypatch, capsys, owner, method, error
):
    """The k earlier batches are still learned from; the checkpoint has the weights that sampled the failed one."""
    step, draw, work, learn = 4, Drawing._round, getattr(owner, method), Learner.learn
    drawn, failed = [], Event()

    def drawing(self, number, *arguments):
        drawn.append(number)
        return draw(self, number, *arguments)

    def failing(*arguments, **options):
        if drawn[-1:] == [step]:
            failed.set()
            raise error
        return work(*arguments, **options)

    def learning(self, taken, number, clock):
        assert number < step - K or failed.wait(60), "all that are in the channels are there when it fails"
        return learn(self, taken, number, clock)

    monkeypatch.setattr(Drawing, "_round", drawing)
    monkeypatch.setattr(owner, method, failing)
    monkeypatch.setattr(Learner, "learn", learning)
    with pytest.raises(type(error), match="no answer"):
        run(tmp_path, "run.checkpoint_every=99")
    monkeypatch.undo()
    assert f"saved the state after rl step {step}" in capsys.readouterr().err
    assert newest(tmp_path) == (step, [], [step - 2, step - 1])
    run(tmp_path)
    assert_same_run(tmp_path, undisturbed)


@pytest.mark.slow
def test_an_interrupted_trainer_saves_what_is_in_the_channels(undisturbed, tmp_path, monkeypatch):
    Pace(monkeypatch, 1)
    learn = Learner.learn

    def interrupted(self, taken, step, clock):
        if step == 3:
            raise KeyboardInterrupt
        return learn(self, taken, step, clock)

    monkeypatch.setattr(Learner, "learn", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, "run.checkpoint_every=99")
    assert newest(tmp_path)[:2] == (3, ["batch"])
    monkeypatch.undo()
    run(tmp_path)
    assert (tmp_path / "metrics.jsonl").read_bytes() == (undisturbed / "metrics.jsonl").read_bytes()


def full_at_a_message(monkeypatch, number: int) -> None:
    """Let a disk be full when so many messages are written: the file is another one that takes nothing."""
    write, written = Journal.message, []

    def writing(self, head, body):
        written.append(head)
        if len(written) == number:
            self._files[MESSAGES].close()
            self._files[MESSAGES] = open("/dev/full", "ab")  # noqa: SIM115
        write(self, head, body)

    monkeypatch.setattr(Journal, "message", writing)


def full_at_a_checkpoint(monkeypatch, number: int) -> None:
    """Let a disk be full when the checkpoint of so many steps is written."""
    save = CheckpointManager.save

    def saving(self, step, **arguments):
        if step >= number:
            raise OSError(errno.ENOSPC, "No space left on device")
        return save(self, step, **arguments)

    monkeypatch.setattr(CheckpointManager, "save", saving)


@pytest.mark.parametrize(
    ("fill", "message"),
    [
        (full_at_a_message, "'/dev/full' cannot be written: No space left on device; checkpoints are kept"),
        (full_at_a_checkpoint, "checkpoint 4 cannot be written in .*: .*No space left.*; the earlier ones are kept"),
    ],
    ids=["messages", "checkpoint"],
)
def test_a_full_disk_with_batches_in_the_channels_is_one_line_and_loses_none(
    undisturbed, tmp_path, monkeypatch, fill, message
):
    kept = "run.keep_messages=True"
    Pace(monkeypatch, 2)
    fill(monkeypatch, 4)
    with pytest.raises(RunError, match=message):
        run(tmp_path, kept)
    monkeypatch.undo()
    assert newest(tmp_path)[1], "batches were in the channels"
    run(tmp_path, kept)
    assert_same_run(tmp_path, undisturbed)
    kept_messages = [(head["version"], head["batch"]) for head, _ in blocks(tmp_path / MESSAGES)]
    assert kept_messages == [(task.version, task.batch) for task in tasks(STEPS, K, lambda version: version % 2 == 0)]


def test_a_run_does_not_go_on_with_another_staleness(undisturbed):
    with pytest.raises(RunError, match="train.staleness.*Choose another --folder"):
        run(undisturbed, "train.staleness=1")


class Alone(Vanilla):
    """An engine that does not declare that it may sample during training."""

    declares: ClassVar[MappingProxyType[str, Any]] = MappingProxyType({"batch_invariant": True})


@attrs.frozen(kw_only=True)
class Judging:
    """A reward with a model."""

    declares: ClassVar[MappingProxyType[str, Any]] = MappingProxyType({"placed": True})

    def __call__(self, completions):
        return [0.0] * len(completions)


def test_in_flight_batches_take_the_newest_weights_and_evaluations_exactly_their_own():
    used = []
    drawing = SimpleNamespace(version=0, newer=object())

    def use(weights, version):
        used.append((weights, version))
        drawing.version = version

    drawing.use = use
    ahead = Ahead(drawing=drawing, tasks=(), taken=0, cursor=None, used=frozenset())
    for version in range(4):
        ahead._given.put((version, f"w{version}"))
    assert ahead._use(Task(0, 0), Clock(1))
    assert ahead._newer() == ("w3", 3), "what came last"
    drawing.version = 3  # as `Drawing` notes when its engine takes them
    assert ahead._newer() is None
    assert ahead._use(Task(1, 2), Clock(3)), "a batch does not go back"
    assert used == []
    assert ahead._use(Task(2, None), Clock(2))
    assert used == [("w2", 2)], "an evaluation does"
    assert ahead._use(Task(2, 3), Clock(4))
    assert ahead._newer() == ("w3", 3)


@pytest.mark.parametrize(
    ("overrides", "error", "message"),
    [
        (["train.staleness=-1"], ConfigError, r"train.staleness.*-1"),
        (
            ["train.staleness=1", "train.correction=()"],
            PlanError,
            r"train.staleness = 1 \(--set train.staleness=1\) learns from completions of older weights, and no chosen component reads"
            r" 'rollout_logps' .*train.correction: .*tis_token.*; train.policy_loss: .*decoupled_ppo",
        ),
        (
            ["train.staleness=1", "train.policy_loss=decoupled_ppo"],
            PlanError,
            "already does the work of a correction",
        ),
        (
            ["train.staleness=1", "train.rollout=alone"],
            PlanError,
            r"rollout alone of .* does not declare 'versions'.* vanilla",
        ),
        (
            ["train.in_flight=True"],
            PlanError,
            r"train.in_flight = True \(--set train.in_flight=True\) gives newer weights .* train.staleness = 0 .* set it to 1",
        ),
        (
            ["train.in_flight=True", "train.staleness=1"],
            PlanError,
            r"rollout vanilla of .* does not declare 'in_flight'.* set it to False, .* one that does: vllm",
        ),
        (
            ["train.staleness=1", "mesh.fsdp=2"],
            PlanError,
            r"programs that span devices 0 to 1.* place the sampler from device 2 on \(rollout/mesh.first\)",
        ),
        (
            ["train.staleness=1", "mesh.fsdp=2", "rollout.vanilla.replicas=2", "train.rewards=['judging']"],
            PlanError,
            r"place the rewards' models from device 2 on \(reward/mesh.first\)",
        ),
    ],
)
def test_what_cannot_run_ahead_is_refused_before_anything_is_loaded(overrides, error, message):
    dovetail.register("rollout", "alone", Alone)
    dovetail.register("reward", "judging", Judging)
    with pytest.raises(error, match=message):
        load(None, [*CORRECTED, *overrides])


def test_the_copies_of_the_weights_are_planned_for():
    planned = [estimate(load(None, [*CORRECTED, f"train.staleness={k}"])).memory for k in (0, 1, 3)]
    trained = planned[0]["parameters"]
    assert [memory.get("weights in flight", 0) for memory in planned] == [0, 2 * trained, 4 * trained]


def test_an_engine_elsewhere_takes_no_memory_of_accelerators(monkeypatch):
    monkeypatch.setattr("dovetail_memory.footprint.base", lambda: 0)
    here, elsewhere = (
        estimate(load(None, [*CORRECTED, "train.staleness=1", *sets])).memory
        for sets in ((), ("rollout.vanilla.replicas=2",))
    )
    assert here["weights in flight"] == 2 * here["parameters"]
    assert "weights in flight" not in elsewhere
    assert elsewhere["parameters"] == here["parameters"]
