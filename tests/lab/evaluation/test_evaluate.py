"""Evaluation: the same examples with the same keys, complete, per data source; and the configs that it refuses."""

import re

import attrs
import numpy as np
import pytest
from tests.core.training.tiny import TINY

import dovetail
from dovetail.config import load
from dovetail.errors import ConfigError, PlanError, PluginError
from dovetail.host.completer import Completer
from dovetail.host.sampling import Sampler
from dovetail.training.columns import make_scorer
from dovetail.training.texts import prompts
from dovetail_lab.evaluation.checks import make_answers, make_checks
from dovetail_lab.evaluation.evaluate import Evaluator
from dovetail_lab.evaluation.report import figures

RIGHT, NEAR, WRONG = "<answer>10</answer>", "<answer>{}</answer>", "<answer>7"


class Words:
    """A tokenizer for the one-token texts of the engine below."""

    vocab_size, pad_id, eos_ids = 8, 0, (1,)
    texts = ("", "", RIGHT, "<answer>10.5</answer>", "<answer>11</answer>", WRONG)

    def render(self, prompt):
        return prompt

    def encode(self, text):
        return [2] * min(len(text), 4)

    def decode(self, ids):
        return "".join(self.texts[i] for i in ids)


class Engine:
    """Returns completions of one token, which `says` chooses by the completion's index among all requested ones."""

    def __init__(self, says):
        self.says, self.asked = says, []

    def generate(self, prompt_tokens, prompt_mask, keys, sampling):
        from dovetail.protocols import Completions

        rows = keys.shape[0] * keys.shape[1]
        self.asked.append((keys.shape, sampling))
        tokens = np.array([[self.says(i % keys.shape[1]), 1] for i in range(rows)], np.int32)
        return Completions(
            tokens=tokens,
            mask=np.ones((rows, 2), bool),
            logps=np.zeros((rows, 2), np.float32),
            finish=np.full(rows, "stop"),
            versions=np.zeros(rows, np.int32),
        )


@attrs.frozen
class Sums:
    """A task of sums whose answers are all ten."""

    columns = ("answer", "data_source")

    def examples(self, split):
        return [{"prompt": f"{i}+{10 - i}", "answer": "10", "data_source": "ab"[i % 2]} for i in range(5)]


def evaluator(says, *overrides):
    config = load(None, [*TINY, "eval.batch_size=2", *overrides])
    scorer, tokenizer = make_scorer(config), Words()
    examples, _ = prompts(config, Sums(), "eval", tokenizer)
    sampler = Sampler(complete=Completer(engine=Engine(says), tokenizer=tokenizer, max_prompt_tokens=4), scorer=scorer)
    return Evaluator(
        sampler=sampler,
        examples=examples,
        checks=make_checks(config, scorer, Sums()),
        answers=make_answers(config),
        settings=config.eval,
        sampling=config.sampling,
        seed=0,
    )


CHECKS = ("eval.success=exact_match", "eval.partial=close_answer", "eval.format=match_format_exactly")


def test_greedy_figures_by_hand():
    found = evaluator(lambda _: 3, *CHECKS)()
    metrics, records = found.metrics, found.records
    assert metrics["eval/accuracy"] == 0
    assert metrics["eval/partial_accuracy"] == 1
    assert metrics["eval/format_accuracy"] == 0
    assert metrics["eval/length_mean"] == 2
    assert metrics["eval/truncated"] == 0
    assert records[4]["index"] == 4
    assert (records[4]["accuracy"], records[4]["partial_accuracy"]) == (False, True)


def test_sampled_figures_by_hand():
    """Of four samples two are right, one is close and one has no answer, so the majority is right."""
    several = ("eval.samples=4", "eval.pass_at=(1, 2)", "eval.majority_at=(4,)", "eval.answer=tagged")
    found = evaluator(lambda sample: (2, 3, 2, 5)[sample], *CHECKS, *several, "eval.saved_samples=99")()
    metrics, records = found.metrics, found.records
    assert metrics["eval/accuracy"] == 1
    assert metrics["eval/sampled_accuracy"] == 0.5
    assert metrics["eval/sampled_partial_accuracy"] == 0.75
    assert metrics["eval/pass@1"] == 0.5
    assert metrics["eval/pass@2"] == pytest.approx(1 - 1 / 6)
    assert metrics["eval/maj@4"] == 1
    sampled = [record for record in records if record["how"] == "sampled"]
    assert len(sampled) == 20
    assert [record["answer"] for record in sampled[:4]] == ["10", "10.5", "10", None]


def test_a_sample_has_what_its_rewards_compare_it_with_in_short(tmp_path, monkeypatch):
    example = {"prompt": "1+1", "answer": "2", "tests": ["f" * 600], "level": 3, "data_source": "a"}
    monkeypatch.setattr(Sums, "columns", ("answer", "data_source", "tests", "level"))
    monkeypatch.setattr(Sums, "examples", lambda self, split: [example] * 3)
    (tmp_path / "mine.py").write_text("def one(completions, tests, level, answer): return [1.0 for _ in completions]\n")
    mine = (f"reward.functions.path={str(tmp_path / 'mine.py')!r}", "reward.functions.name='one'")
    found = evaluator(lambda _: 2, "train.rewards=['functions']", "eval.success=None", *mine)()
    for record in found.records:
        assert record["expected"] == "2"
        assert record["columns"] == {"tests": f"['{'f' * 498}... (604 characters)", "level": 3}
    assert "columns" not in evaluator(lambda _: 2, *CHECKS)().records[0], "what it expects is there already"


def test_without_a_success_reward_the_total_score_decides():
    assert evaluator(lambda _: 2, "eval.success=None", "train.rewards=['exact_match']")().metrics["eval/accuracy"] == 1
    assert evaluator(lambda _: 2, "eval.success=None", "eval.success_at=1.5")().metrics["eval/accuracy"] == 0


def test_what_a_reward_logs_is_evaluated_too_even_if_a_batch_has_none_of_it(tmp_path):
    """Batches have two prompts; `seen` is logged for those that begin with 2 or 3, which are the second batch."""
    (tmp_path / "mine.py").write_text(
        "def one(completions): return [1.0 for _ in completions]\n"
        "def two(completions, prompts, log_extra):\n"
        "    if prompts[0][0] == '2': log_extra('seen', [int(p[0]) for p in prompts])\n"
        "    return [0.5 for _ in completions]\n"
    )
    mine = (f"reward.functions.path={str(tmp_path / 'mine.py')!r}", "reward.functions.name=['one', 'two']")
    found = evaluator(lambda _: 2, "train.rewards=['functions']", *mine)()
    parts = {name.rpartition("/")[2]: value for name, value in found.metrics.items() if "reward/functions/" in name}
    assert parts == {"one": 1.0, "two": 0.5, "seen": 2.5}
    assert found.records[0]["rewards"] == {
        "functions": 1.5,
        "functions/one": 1.0,
        "functions/two": 0.5,
        "functions/seen": None,
    }


def test_every_batch_has_one_shape_and_every_prompt_is_scored():
    made = evaluator(lambda _: 2)
    assert made().metrics["eval/accuracy"] == 1
    assert [shape for shape, _ in made.sampler.engine.asked] == [(2, 1)] * 3  # pyright: ignore[reportAttributeAccessIssue]


def test_greedy_is_greedy_and_samples_are_drawn_as_eval_says():
    made = evaluator(
        lambda _: 2, "sampling.temperature=0.5", "sampling.top_k=3", "eval.samples=2", "eval.preset=standard"
    )
    made()
    greedy, *_, sampled = (sampling for _, sampling in made.sampler.engine.asked)  # pyright: ignore[reportAttributeAccessIssue]
    assert (greedy.temperature, greedy.top_k, greedy.max_tokens) == (0, None, 6)
    assert (sampled.temperature, sampled.top_k, sampled.top_p, sampled.max_tokens) == (0.7, 50, 0.95, 6)


def test_figures_are_estimated_for_each_source():
    made = evaluator(lambda _: 2, *CHECKS)
    outcomes = made.greedy()
    found = figures(outcomes.columns(), [example["data_source"] for example in outcomes.examples], {"accuracy": (0, 1)})
    assert {source: of["accuracy"].n for source, of in found.items()} == {"all": 5, "a": 3, "b": 2}
    assert found["a"]["accuracy"].value == 1
    assert found["b"]["accuracy"].low < 0.5


def test_a_source_that_is_called_all_does_not_take_the_place_of_all_prompts():
    found = figures({"accuracy": np.array([1.0, 0.0, 0.0])}, ["all", "b", "b"], {})
    assert {source: of["accuracy"].n for source, of in found.items()} == {"all": 3, "all (data_source)": 1, "b": 2}


@pytest.mark.parametrize(
    ("overrides", "error", "message"),
    [
        (("eval.samples=2", "eval.pass_at=(1, 4)"), ConfigError, r"eval\.pass_at = \(1, 4\) needs numbers from 1 to eval\.samples = 2"),
        (("eval.samples=2", "eval.majority_at=(0,)", "eval.answer=tagged"), ConfigError, r"eval\.majority_at = \(0,\) needs numbers"),
        (("eval.samples=2", "eval.majority_at=(2,)"), ConfigError, "set eval.answer to one of boxed, last_number, tagged"),
        (("eval.format=code",), PlanError, "reads the column 'tests', which task arithmetic does not have"),
    ],
)  # fmt: skip
def test_what_cannot_be_evaluated_is_refused_before_anything_is_sampled(overrides, error, message):
    with pytest.raises(error, match=message):
        evaluator(lambda _: 2, *overrides)


@pytest.mark.parametrize(
    ("gives", "said"),
    [
        (
            lambda texts: ["1"],
            "returned 1 answers for 8 completions; return a list with a text or None for each completion",
        ),
        (lambda texts: [None] * 9, "returned more than 8 answers for 8 completions; .*"),
        (lambda texts: [7 for _ in texts], "gave the answer 7; .*"),
        (lambda texts: None, "returned None, as a function without `return` does; .*"),
        (lambda texts: "12345678", "returned '12345678'; .*"),
        (lambda texts: texts.missing, "raised AttributeError: .*"),
    ],
)
def test_an_answer_that_is_not_a_text_for_each_completion_is_refused_by_name(gives, said):
    def mine(completions):
        return gives(completions)

    dovetail.register("answer", "mine", mine)
    several = ("eval.samples=4", "eval.majority_at=(2,)", "eval.answer=mine")
    with pytest.raises(PluginError) as caught:
        evaluator(lambda _: 2, *CHECKS, *several)()
    assert re.fullmatch(rf"answer\.mine of session 0 \(.*\) {said} \[{__file__}:\d+\]", str(caught.value))
