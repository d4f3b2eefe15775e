"""Engine `recorded`: training steps get the task's completions, everything else is sampled."""

import json
from pathlib import Path
from typing import Any

import attrs
import jax
import numpy as np
import pytest
from tests.core.training.cut_off import cut_off
from tests.core.training.test_loop import assert_same_parameters
from tests.core.training.tiny import TINY

import dovetail
from dovetail.config import load
from dovetail.errors import ConfigError, DataError, PlanError
from dovetail.plan.planner import plan_step
from dovetail.protocols import Completions, Sampling
from dovetail.run.files import read_lines
from dovetail.training.loop import train
from dovetail_rollout.rollout.recorded import OpenRecorded, Recorded

EOS, PAD = 1, 0
SAMPLING = Sampling(max_tokens=4)
PAIRS = ("task.arithmetic.pairs=True", "train.rollout=recorded", "train.rewards=['recorded','exact_match']")
WEIGHTS = "reward_manager.weighted_sum.weights={'exact_match':0.0}"
DPO = (*TINY, *PAIRS, WEIGHTS, "train.group_size=2", "train.loss_terms=dpo", "train.policy_loss=zero")


class Letters:
    """A letter is a token."""

    pad_id, eos_ids = PAD, (EOS, 2)

    def encode(self, text):
        return [ord(letter) for letter in text]


@attrs.define
class Sampler:
    """Notes what it is asked."""

    asked: list = attrs.field(factory=list)
    closed: bool = False

    def generate(self, prompt_tokens, prompt_mask, keys, sampling, **options):
        self.asked.append(options)
        return "sampled"

    def sync(self, weights, version):
        self.asked.append(version)

    def close(self):
        self.closed = True


def engine(*columns: str) -> OpenRecorded:
    return OpenRecorded(columns or ("chosen", "rejected"), Sampler(), Letters())  # pyright: ignore[reportArgumentType]


def given(examples: list[dict[str, Any]], samples: int, *columns: str, max_tokens: int = 4) -> Completions:
    keys = jax.random.split(jax.random.key(0), (len(examples), samples))
    prompts = np.ones((len(examples), 1), np.int32)
    with_prompts = [{"prompt": "which?", **example} for example in examples]
    return engine(*columns).generate(
        prompts, prompts > 0, keys, attrs.evolve(SAMPLING, max_tokens=max_tokens), examples=with_prompts
    )


def texts(drawn: Completions) -> list[str]:
    return ["".join(map(chr, row[mask])) for row, mask in zip(drawn.tokens, drawn.mask, strict=True)]


def test_completions_are_those_of_the_columns_in_their_order():
    drawn = given([{"chosen": "ab", "rejected": "c"}, {"chosen": "", "rejected": "d"}], 2)
    assert texts(drawn) == ["ab\x01", "c\x01", "\x01", "d\x01"]
    assert drawn.finish.tolist() == ["eos"] * 4
    assert np.isnan(drawn.logps[drawn.mask]).all()
    assert (drawn.logps[~drawn.mask] == 0).all()
    assert (drawn.tokens[~drawn.mask] == PAD).all()


def test_what_is_too_long_is_cut_and_has_no_end():
    drawn = given([{"chosen": "abcd", "rejected": "abc"}], 2)
    assert texts(drawn) == ["abcd", "abc\x01"]
    assert drawn.finish.tolist() == ["length", "eos"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([{"role": "assistant", "content": "a"}], "a\x01"),
        (np.array([{"role": "user", "content": "?"}, {"role": "assistant", "content": "b"}]), "b\x01"),
        ("c", "c\x01"),
    ],
    ids=["a reply", "a conversation as parquet gives it", "a text"],
)
def test_a_completion_is_a_text_or_the_end_of_a_conversation(value, expected):
    assert texts(given([{"answer": value}], 1, "answer")) == [expected]


def test_a_column_of_lists_makes_groups_of_several_sizes():
    drawn = given([{"all": ["a", "b", "c"]}, {"all": np.array(["d"])}], 3, "all")
    assert texts(drawn) == ["a\x01", "b\x01", "c\x01", "d\x01", "", ""]
    assert drawn.finish.tolist() == ["eos"] * 4 + ["error"] * 2


@pytest.mark.parametrize(
    ("example", "columns", "words"),
    [
        ({"chosen": "a", "rejected": None}, (), "and not None; its prompt begins with 'which?'"),
        ({"all": []}, ("all",), "and not none;"),
        ({"all": ["a", 7]}, ("all",), "and not 7;"),
        ({"all": ["a", "b", "c"]}, ("all",), "an example has 3 completions, and train.group_size is 2;"),
        ({"all": [{"role": "user", "content": "a"}]}, ("all",), "ends with the assistant's, and not [{'role': 'user'"),
    ],
)
def test_what_is_not_a_completion_is_refused(example, columns, words):
    with pytest.raises(DataError) as found:
        given([example], 2, *columns)
    assert words in str(found.value)
    assert str(found.value).startswith("rollout.recorded.columns = (")


def test_without_examples_it_samples():
    opened, prompts = engine(), np.ones((1, 1), np.int32)
    keys = jax.random.split(jax.random.key(0), (1, 1))
    assert opened.generate(prompts, prompts > 0, keys, SAMPLING, keep_support=True) == "sampled"
    assert opened.turns(prompts, prompts > 0, keys, SAMPLING, 4) is None  # this sampler has no turns
    with pytest.raises(ConfigError, match="set train.agent_loop = 'single_turn'"):
        opened.turns(prompts, prompts > 0, keys, SAMPLING, 4, examples=[{}])
    opened.sync(None, 3)  # pyright: ignore[reportArgumentType]
    opened.close()
    assert opened.inner == Sampler([{"keep_support": True}, 3], closed=True)
    assert opened.version == 3


@pytest.mark.parametrize("columns", [(), ("a", "a"), "chosen"])
def test_columns_that_are_none_are_refused(columns):
    with pytest.raises(ConfigError, match="name one column or several, each once"):
        Recorded(columns=columns)


def test_it_computes_where_the_engine_inside_does():
    choice = load(None, [*DPO, "rollout.vanilla.slots=3"]).choice("train.rollout")
    assert choice.declares["placed"] is True
    assert choice.declares["slots"] == 3
    assert not load(None, [*DPO, "rollout.recorded.engine=vllm"]).choice("train.rollout").declares["placed"]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (("train.correction=tis_token",), "reads 'rollout_logps', which an engine reports of completions that it"),
        (("train.policy_loss=rollout_is",), "reads 'rollout_logps', which an engine reports of completions that it"),
        (("train.staleness=1", "train.correction=tis_token"), "rollout recorded of dovetail"),
    ],
)
def test_nothing_compares_with_log_probabilities_that_nobody_knows(settings, words):
    with pytest.raises(PlanError) as found:
        plan_step(load(None, [*DPO, *settings]))
    assert words in str(found.value)


def test_a_task_without_the_columns_is_refused_before_a_model_is_made(tmp_path):
    config = load(None, [*DPO, "task.arithmetic.pairs=False"])
    with pytest.raises(PlanError) as found:
        train(config, tmp_path / "run")
    assert "rollout.recorded of dovetail" in str(found.value)
    assert "reads the column 'chosen', which task arithmetic does not have" in str(found.value)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("recorded") / "run"
    train(load(None, [*DPO]), folder)
    return folder


def test_a_run_learns_from_the_pairs_and_evaluates_what_it_samples(run):
    records = list(read_lines(run / "metrics.jsonl"))
    evaluations = [each for each in records if "eval/accuracy" in each]
    steps = [each for each in records if each["phase"] == "rl" and each not in evaluations]
    assert [step["reward/recorded"] for step in steps] == [0.5] * 4
    assert all(step["loss_term/dpo/paired"] == 1 for step in steps)
    assert steps[0]["loss_term/dpo/mean"] == pytest.approx(np.log(2), rel=1e-6)  # policy and reference are the same
    assert steps[-1]["loss_term/dpo/mean"] != pytest.approx(np.log(2), rel=1e-6)
    assert not any(name.startswith("mismatch/") for step in steps for name in step)
    assert len(evaluations) == 3
    assert all(each["eval/accuracy"] <= 1 and "eval/reward/recorded" not in each for each in evaluations)


def test_a_run_that_is_cut_off_goes_on_to_the_same_end(run, tmp_path):
    with cut_off(3):
        train(load(None, [*DPO]), tmp_path / "run")
    train(load(None, [*DPO]), tmp_path / "run")
    assert_same_parameters(run, tmp_path / "run")


def test_prompts_of_a_file_have_several_completions_with_scores(tmp_path):
    """Ragged groups: what a prompt does not have is in no pair, and has no score."""
    rows = [
        {
            "prompt": f"{i} + {i}=",
            "completions": [f"{2 * i}", "no", "0"][: 2 + i % 2],
            "scores": [1, 0.5, 0][: 2 + i % 2],
        }
        for i in range(1, 9)
    ]
    path = str(tmp_path / "rows.jsonl")
    Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = (
        "train.task=records",
        f"task.records.path={path!r}",
        f"task.records.eval_path={path!r}",
        "rollout.recorded.columns=('completions',)",
        "reward.recorded.scores_column=scores",
        "train.group_size=3",
        "train.rewards=recorded",
        "eval.every=None",
        "sft.steps=0",
        "train.steps=1",
        "train.prompts=8",
    )
    left = ("task.arithmetic", "reward_manager", "eval.success", "train.rewards")
    train(load(None, [*(each for each in DPO if not each.startswith(left)), *settings]), tmp_path / "run")
    (step,) = read_lines(tmp_path / "run" / "metrics.jsonl")
    assert step["reward/recorded"] == pytest.approx((8 * 1.5) / 20)
    assert step["loss_term/dpo/paired"] == 1


def test_a_whole_conversation_is_its_prompt_and_its_completion(tmp_path):
    said = [{"role": "user", "content": "Which?"}, {"role": "assistant", "content": "this"}]
    row = {"chosen": said, "rejected": [said[0], {"role": "assistant", "content": "that"}]}
    path = str(tmp_path / "rows.jsonl")
    Path(path).write_text(json.dumps(row) + "\n")
    task = dovetail.get("task", "records").bind(path=path, eval_path=path, prompt_column="chosen")
    (example,) = task.examples("train")
    assert example["prompt"] == said[:1]
    assert set(Recorded().columns) <= set(task.columns)
    drawn = given([{**example, "prompt": "Which?"}], 2, max_tokens=9)
    assert texts(drawn) == ["this\x01", "that\x01"]


def test_the_components_are_found_by_name():
    assert dovetail.get("rollout", "recorded").load() is Recorded
