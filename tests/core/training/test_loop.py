"""Whole runs of a tiny model: their files, their computations, resuming and failures."""

import json
import re
import shutil
from pathlib import Path

import attrs
import jax
import numpy as np
import pytest
from tests.core.training.cut_off import cut_off
from tests.core.training.tiny import TINY

import dovetail
from dovetail.config import load
from dovetail.errors import DataError, RunError
from dovetail.run.files import read_lines
from dovetail.run.summary import series
from dovetail.step import forward
from dovetail.training.loop import train
from dovetail_lab.metric import Recorded
from dovetail_lab.summary import summarise
from dovetail_rollout.rollout.vanilla import VanillaEngine


def config(*overrides):
    return load(None, [*TINY, *overrides])


def run(folder: Path, *overrides, **options):
    return train(config(*overrides), folder, **options)


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """The folder of one undisturbed run with all optional features enabled."""
    folder = tmp_path_factory.mktemp("runs") / "undisturbed"
    run(folder, *EVERYTHING)
    return folder


EVERYTHING = (
    "train.advantage=gae",
    "train.policy_loss=ppo",
    "train.kl_coef=0.05",
    "train.kl_in=reward",
    "train.kl_controller=adaptive",
    "train.entropy_coef=0.01",
    "train.entropy_controller=adaptive",
    "entropy_controller.adaptive.target=99.0",
    "train.correction=['tis_token', 'reject']",
    "train.loss_mask=['top_entropy', 'pf_ppo', 'opsm']",
    "train.reward_shaping=['reference_quality', 'representation_alignment']",
    "train.schedule=linear",
    "train.epochs=2",
    "train.mini_batch_size=6",
    "train.micro_batch_size=4",
    "critic.warmup_steps=1",
    "eval.samples=2",
    "eval.pass_at=(1, 2)",
    "run.sinks=('tensorboard', 'curve')",
)


def test_a_run_leaves_its_records(finished):
    phases = [(line["phase"], line["step"]) for line in read_lines(finished / "metrics.jsonl")]
    assert phases == [
        *[("sft", step) for step in (1, 2, 3, 4)],
        *[("rl", step) for step in (0, 1, 2, 2, 3, 4, 4)],
    ]
    names = set().union(*read_lines(finished / "metrics.jsonl"))
    assert {
        "sft/loss",
        "reward/mean",
        "reward/exact_match",
        "kl/mean",
        "kl/coef",
        "entropy/mean",
        "critic/loss",
    } <= names
    assert {"eval/accuracy", "eval/pass@1", "eval/pass@2", "policy_loss/loss", "optimizer/grad_norm"} <= names
    assert not any(name.startswith("time/") for name in names)
    for name in (
        "config.gin",
        "run.json",
        "code.json",
        "environment.json",
        "parameters.txt",
        "tokenizer",
        "curve.svg",
        "events",
    ):
        assert (finished / name).exists(), name
    (start,) = json.loads((finished / "environment.json").read_text())
    assert start["backend"] == jax.default_backend()
    assert sum(start["devices"].values()) == jax.device_count()
    sample = read_lines(finished / "samples.jsonl")[0]
    assert sample["prompt"].endswith("=")
    assert set(sample["rewards"]) == {"exact_match", "match_format_approximately"}


def test_each_prompt_of_an_evaluation_is_kept(finished):
    """The mean over the prompts is the metric, and the order of the prompts does not change."""
    metrics = {line["step"]: line for line in read_lines(finished / "metrics.jsonl") if "eval/accuracy" in line}
    rows = read_lines(finished / "eval.jsonl")
    assert [row["step"] for row in rows] == [0, 2, 4]
    for row in rows:
        for name, values in row.items():
            if name not in ("phase", "step"):
                assert len(values) == 6
                assert np.mean(values) == pytest.approx(metrics[row["step"]][f"eval/{name}"])


def test_every_metric_is_in_the_docs(finished):
    text = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text()
    documented = text.replace("eval/pass@K", "eval/pass@1 eval/pass@2")
    lines = [*read_lines(finished / "metrics.jsonl"), *read_lines(finished / "timings.jsonl")]
    names = {name for line in lines for name in line} - {"phase", "step"}
    roles = ("policy_loss/", "advantage/", "critic/", "reward/", "eval/reward/")
    several = re.compile(r"^(correction|loss_mask|reward_shaping|completion_filter)/\w+/")
    missing = [n for n in sorted(names) if several.sub(r"\1/", n) not in documented and not n.startswith(roles)]
    assert missing == []


def test_every_metric_is_known_before_the_run(finished):
    """Otherwise a sweep would refuse to compare by it."""
    recorded = Recorded.of(load(finished / "config.gin"))
    names = {name for line in read_lines(finished / "metrics.jsonl", "rl") for name in line} - {"phase", "step"}
    assert [name for name in sorted(names) if not recorded.has(name)] == []


def test_the_written_config_reproduces_the_run(finished):
    again = load(finished / "config.gin")
    assert again == config(*EVERYTHING)


def test_the_critic_warms_up_before_the_policy_moves(finished):
    rates = dict(series(finished, "optimizer/lr"))
    assert 1 not in rates
    assert {2, 3, 4} <= rates.keys()


def test_the_adaptive_controller_moves_the_coefficient(finished):
    coefficients = [value for _, value in series(finished, "kl/coef")]
    assert coefficients[0] == pytest.approx(0.05)
    assert len(set(coefficients)) > 1


def test_the_entropy_controller_moves_the_coefficient(finished):
    coefs = [coef for _, coef in series(finished, "entropy/coef")]
    # the critic warms up in the first step, so the policy's entropy is first seen in the second
    np.testing.assert_allclose(coefs, [0.01, 0.01, 0.015, 0.02], rtol=1e-5)


def test_a_schedule_fades_in(finished):
    np.testing.assert_allclose([weight for _, weight in series(finished, "schedule/weight")], [0, 0.5, 1, 1])


def test_the_summary_reads_the_folder(finished):
    text = summarise(finished)
    assert "warm start   loss" in text
    assert "held-out" in text
    assert json.loads((finished / "summary.json").read_text())["eval/accuracy"]["last"] >= 0


def test_the_command_of_a_finished_run_says_that_nothing_is_trained(finished, tmp_path, capsys):
    shutil.copytree(finished, tmp_path / "again")
    run(tmp_path / "again", *EVERYTHING)
    assert "this run is finished; nothing is trained" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(("phase", "step"), [("sft", 3), ("rl", 0), ("rl", 3)])
def test_a_run_that_stops_anywhere_goes_on_bit_for_bit(finished, tmp_path, phase, step):
    folder = tmp_path / "disturbed"
    with cut_off(step, phase):
        run(folder, *EVERYTHING)
    run(folder, *EVERYTHING)
    for name in ("metrics.jsonl", "samples.jsonl", "eval.jsonl"):
        assert (folder / name).read_bytes() == (finished / name).read_bytes()
    assert_same_parameters(folder, finished)


def assert_same_parameters(first: Path, second: Path) -> None:
    import orbax.checkpoint as ocp

    def newest(folder):
        """Read into the host's memory, whatever devices the run has had."""
        steps = (folder / "checkpoints" / "steps").absolute()
        number = max(int(each.name) for each in steps.iterdir() if each.name.isdigit())
        with ocp.PyTreeCheckpointer() as reader:
            tree = reader.metadata(steps / str(number) / "state").item_metadata.tree
            arguments = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), tree)
            return number, reader.restore(
                steps / str(number) / "state", args=ocp.args.PyTreeRestore(restore_args=arguments)
            )

    (step, state), (other_step, other) = newest(first), newest(second)
    assert step == other_step
    jax.tree.map(np.testing.assert_array_equal, state, other)


def test_evaluation_can_be_turned_off(tmp_path):
    last = run(tmp_path, "eval.every=None", "eval.examples=1", "sft.steps=0", "train.steps=1")
    assert not any(name.startswith("eval/") for name in last)
    assert (tmp_path / "eval.jsonl").read_text() == ""


def test_the_evaluation_before_training_can_be_left_out(tmp_path):
    run(tmp_path, "eval.at_start=False", "eval.every=1", "sft.steps=0", "train.steps=1")
    assert [step for step, _ in series(tmp_path, "eval/accuracy")] == [1]


def test_a_finished_run_does_nothing_when_repeated(finished, tmp_path):
    folder = shutil.copytree(finished, tmp_path / "copy")
    run(folder, *EVERYTHING)
    assert (folder / "metrics.jsonl").read_bytes() == (finished / "metrics.jsonl").read_bytes()


@pytest.mark.slow
def test_sft_alone_then_train_is_one_run(tmp_path):
    run(tmp_path / "both")
    run(tmp_path / "chained", only_sft=True)
    assert not series(tmp_path / "chained", "reward/mean")
    run(tmp_path / "chained")
    assert (tmp_path / "both" / "metrics.jsonl").read_bytes() == (tmp_path / "chained" / "metrics.jsonl").read_bytes()


@pytest.fixture
def passes(monkeypatch) -> list[str]:
    """Names of the quantities of each forward pass traced, and `values` for each pass of the critic."""
    monkeypatch.setattr("dovetail.training.loop.rehearse", lambda extras: None)  # which traces passes of stand-ins
    traced = []
    quantities, values = forward.quantities, forward.values

    def watch_quantities(model, batch, wanted, *others, **options):
        traced.append("+".join(wanted))
        return quantities(model, batch, wanted, *others, **options)

    def watch_values(*arguments):
        traced.append("values")
        return values(*arguments)

    monkeypatch.setattr("dovetail.step.scoring.quantities", watch_quantities)
    monkeypatch.setattr("dovetail.step.scoring.values", watch_values)
    return traced


SHORT = ("sft.steps=0", "train.steps=1", "train.monitor=()")


def test_reinforce_without_kl_runs_one_forward_pass_the_update(tmp_path, passes):
    run(tmp_path, "train.policy_loss=reinforce", *SHORT)
    assert passes == ["logps"]


@pytest.mark.slow
def test_kl_adds_just_the_reference(tmp_path, passes):
    run(tmp_path, "train.policy_loss=reinforce", "train.kl_coef=0.1", *SHORT)
    assert passes == ["logps", "logps"]
    assert (tmp_path / "checkpoints" / "start").exists()


@pytest.mark.slow
def test_a_second_epoch_adds_the_policy_at_collection(tmp_path, passes):
    run(tmp_path, "train.policy_loss=grpo", "train.epochs=2", *SHORT)
    assert passes == ["logps", "logps"]


def test_gae_adds_the_critic(tmp_path, passes):
    run(tmp_path, "train.policy_loss=grpo", "train.advantage=gae", *SHORT)
    assert sorted(passes) == ["logps", "values", "values"]


@pytest.mark.parametrize(
    "role",
    [
        "train.policy_loss=gspo",
        pytest.param("train.advantage=rloo", marks=pytest.mark.slow),
        pytest.param("train.loss_agg=token_sum", marks=pytest.mark.slow),
    ],
)
def test_a_variant_needs_no_other_change(tmp_path, role):
    last = run(tmp_path, role, "sft.steps=0", "train.steps=2")
    assert np.isfinite(last["policy_loss/loss"])


def test_a_step_compiles_once(tmp_path, caplog):
    with jax.log_compiles(), caplog.at_level("WARNING", logger="jax"):
        # a shape of its own: runs of one process share what they compile
        run(tmp_path, "sft.steps=0", "train.steps=3", "eval.every=10", "train.max_prompt_tokens=14")
    compiled = [r.getMessage() for r in caplog.records if "Finished XLA compilation of jit" in r.getMessage()]
    count = {name: sum(f"jit({name})" in m for m in compiled) for name in ("_begin", "_extend", "__call__")}
    # the sampler: groups in training, greedy in evaluation; the collector and the update
    assert count == {"_begin": 2, "_extend": 2, "__call__": 2}


def test_a_loss_that_is_no_number_stops_the_run_and_keeps_what_was_good(tmp_path, monkeypatch):
    def poison(logps, advantages, mask, progress):
        """NaN from the third step on."""
        import jax.numpy as jnp

        return jnp.where(progress > 0.4, jnp.nan, -logps * advantages)

    def close(engine):
        closed.append(engine)

    closed = []
    monkeypatch.setattr(VanillaEngine, "close", close)
    dovetail.register("policy_loss", "poison", poison)
    with pytest.raises(RunError) as caught:
        run(tmp_path, "train.policy_loss=poison", "sft.steps=0")
    message = str(caught.value)
    assert message.startswith("policy_loss/loss is nan at rl step 3; the batch is in ")
    dump = tmp_path / "not-finite-rl-3.npz"
    assert str(dump) in message
    assert f"the last good checkpoint is 2 in '{tmp_path / 'checkpoints'}'. A lower learning rate" in message
    assert {"tokens", "mask", "advantages", "scores"} <= set(np.load(dump).files)
    assert (tmp_path / "checkpoints" / "steps" / "2").exists()
    assert [step for step, _ in series(tmp_path, "reward/mean")] == [1, 2]
    assert len(closed) == 1, "the engine is closed whatever ends the run"


def test_a_folder_of_another_config_is_refused_with_the_difference(tmp_path):
    run(tmp_path, "sft.steps=1", only_sft=True)
    with pytest.raises(RunError, match=r"belongs to run \w+-s0, this one is \w+-s0: train.lr = 0.01 -> 0.5"):
        run(tmp_path, "sft.steps=1", "train.lr=0.5")
    with pytest.raises(RunError, match=r"belongs to run \w+-s0, this one is \w+-s3: run.seed = 0 -> 3"):
        run(tmp_path, "sft.steps=1", "run.seed=3")


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"run folder '.*file/run' cannot be written: Not a directory"):
        run(tmp_path / "file" / "run")


@pytest.mark.slow
def test_a_full_disk_is_one_line_and_keeps_the_earlier_checkpoints(tmp_path, monkeypatch):
    from orbax.checkpoint import CheckpointManager

    save = CheckpointManager.save

    def full(self, step, **arguments):
        if step > 4:
            raise OSError(28, "No space left on device")
        return save(self, step, **arguments)

    monkeypatch.setattr(CheckpointManager, "save", full)
    with pytest.raises(
        RunError, match=r"checkpoint 6 cannot be written in .*: .*No space left.*; the earlier ones are kept"
    ):
        run(tmp_path)
    monkeypatch.undo()
    run(tmp_path)
    assert series(tmp_path, "reward/mean")[-1][0] == 4


def test_a_long_prompt_is_refused_before_training(tmp_path):
    with pytest.raises(DataError, match=r"prompts exceed train.max_prompt_tokens = 3 .* 'filter' or 'truncate'"):
        run(tmp_path, "train.max_prompt_tokens=3")
    assert read_lines(tmp_path / "metrics.jsonl") == []


@pytest.mark.slow
def test_a_critic_of_another_size_starts_on_its_own(tmp_path):
    last = run(tmp_path, "train.advantage=gae", "critic/model.decoder.width=8", "sft.steps=0", "train.steps=1")
    assert np.isfinite(last["critic/loss"])


def test_a_reward_that_reads_an_absent_column_is_refused_before_the_model_is_made(tmp_path):
    def graded(completions, rubric):
        """A reward for another task."""
        return [0.0 for _ in completions]

    dovetail.register("reward", "graded", graded)
    message = r"reward graded of \S+ .* reads the column 'rubric', which task arithmetic .*test_loop\.py:\d+\]$"
    with pytest.raises(dovetail.DovetailError, match=message):
        run(tmp_path, "train.rewards=['graded']")
    with pytest.raises(dovetail.DovetailError, match=message):
        run(tmp_path / "judged", "eval.success=graded")
    assert not (tmp_path / "tokenizer").exists()


@attrs.frozen(kw_only=True)
class Graded:
    """Sums with a column of numbers, or of words."""

    words: bool = False
    columns = ("answer", "difficulty")

    def examples(self, split):
        """Return the sums of the arithmetic task, graded by their length."""
        grade = str if self.words and split == "train" else float
        sums = config().choice("train.task").bind().examples(split)
        return [dict(example) | {"difficulty": grade(len(example["prompt"]))} for example in sums]

    def corpus(self):
        """Return its corpus."""
        return config().choice("train.task").bind().corpus()


def test_a_column_of_numbers_reaches_a_run_and_one_of_words_is_refused(tmp_path):
    def eager(logps, advantages, difficulty, mask):
        """Learn more from what is difficult."""
        return -logps * advantages, {"difficulty": difficulty}

    dovetail.register("policy_loss", "eager", eager)
    dovetail.register("task", "graded", Graded)
    chosen = ("train.task=graded", "train.policy_loss=eager", "sft.steps=0", "train.steps=1", "eval.every=10")
    last = run(tmp_path / "numbers", *chosen)
    assert 4 <= last["policy_loss/difficulty"] <= 12
    with pytest.raises(
        DataError, match=r"reads the column 'difficulty' as a field, and it is '\d+' where the prompt is "
    ):
        run(tmp_path / "words", *chosen, "task.graded.words=True")


def test_a_group_filter_replaces_what_it_rejects(tmp_path):
    def odd_starts(tokens, group_ids):
        """Keep groups whose first completion starts with an odd id."""
        import jax.numpy as jnp

        odd = tokens[:, 0] % 2 == 1
        return jnp.repeat(odd[::4], 4, total_repeat_length=len(group_ids)), {"odd": odd}

    dovetail.register("group_filter", "odd_starts", odd_starts)
    filtered = ("train.group_filter=odd_starts", "train.refill_rounds=2", "sft.steps=0", "train.steps=3")
    run(tmp_path / "filtered", *filtered)
    lines = [line for line in read_lines(tmp_path / "filtered" / "metrics.jsonl") if "reward/mean" in line]
    assert all(1 <= line["group_filter/rounds"] <= 3 for line in lines)
    assert all(0 <= line["group_filter/kept"] <= 1 for line in lines)
    assert len({line["group_filter/kept"] for line in lines}) > 1
    assert all(0 < line["group_filter/odd"] < 1 for line in lines), "what a filter reports is of all rounds"
