import re
from itertools import combinations_with_replacement

import pytest

from dovetail.errors import ConfigError
from dovetail_task.task.arithmetic import SMALLEST_OPERAND, Arithmetic, Question

SPLITS = ("train", "eval", "sft")


def questions(task, split):
    """The questions of a split, whatever the order of their operands."""
    parts = (example["question"].split() for example in task.examples(split))
    return {(operation, *sorted((int(a), int(b)))) for a, operation, b in parts}


@pytest.mark.parametrize("split", SPLITS)
def test_answers_are_right_and_never_negative(split):
    for example in Arithmetic(max_operand=40).examples(split)[:300]:
        assert int(example["answer"]) == eval(example["question"]) >= 0
        assert example["prompt"] == f"What is {example['question']}?\n"


def test_splits_share_no_question_even_with_operands_swapped():
    task = Arithmetic(max_operand=20, train_size=3000, eval_size=1000, sft_size=2000)
    train, held, sft = (questions(task, split) for split in SPLITS)
    assert train
    assert held
    assert sft
    assert not train & held
    assert not train & sft
    assert not held & sft


def test_held_out_questions_stay_held_out_under_every_seed():
    small = {"max_operand": 12, "operations": ("+",)}
    held = questions(Arithmetic(**small, seed=1), "eval")
    for seed in range(2, 5):
        assert not held & questions(Arithmetic(**small, seed=seed, train_size=1000), "train")


@pytest.mark.parametrize("operation", ["+", "-", "*"])
def test_the_smallest_difficulty_has_questions_in_every_split(operation):
    pairs = combinations_with_replacement(range(SMALLEST_OPERAND + 1), 2)
    assert {Question(operation, a, b).owner for a, b in pairs} == set(SPLITS)


def test_an_example_depends_on_seed_split_and_index_alone():
    small, large = Arithmetic(train_size=5), Arithmetic(train_size=50, eval_size=1, template="{question} =", noise=1)
    assert [e["question"] for e in small.examples("train")] == [e["question"] for e in large.examples("train")[:5]]
    other = Arithmetic(seed=1).examples("train")
    assert [e["question"] for e in other[:5]] != [e["question"] for e in small.examples("train")]


def test_operations_and_operands_are_drawn_uniformly():
    task = Arithmetic(operations=("+", "*"), max_operand=9, train_size=4000)
    drawn = [example["question"].split() for example in task.examples("train")]
    assert {operation for _, operation, _ in drawn} == {"+", "*"}
    assert {int(a) for a, _, _ in drawn} == set(range(10))
    assert 0.4 < sum(operation == "+" for _, operation, _ in drawn) / 4000 < 0.6


@pytest.mark.parametrize("noise", [0.0, 0.25, 1.0])
def test_noise_is_the_share_of_wrong_demonstrations(noise):
    task = Arithmetic(noise=noise, sft_size=2000)
    wrong = 0
    for example in task.examples("sft"):
        said = re.fullmatch(r"<reasoning>(.+) = (\d+)</reasoning><answer>(\d+)</answer>", example["completion"])
        assert said
        assert said[1] == example["question"]
        assert said[2] == said[3]
        assert int(example["answer"]) == eval(example["question"])
        wrong += said[3] != example["answer"]
    assert wrong / 2000 == pytest.approx(noise, abs=0.04)  # four standard deviations


@pytest.mark.parametrize("split", ["train", "eval"])
def test_pairs_are_a_right_and_a_wrong_answer(split):
    plain, pairs = (Arithmetic(pairs=pairs, train_size=500).examples(split) for pairs in (False, True))
    for alone, example in zip(plain, pairs, strict=True):
        said = [re.fullmatch(r".* = (\d+)</reasoning><answer>\1</answer>", example[c]) for c in ("chosen", "rejected")]
        assert said[0][1] == example["answer"] != said[1][1]
        assert {name: value for name, value in example.items() if name not in ("chosen", "rejected")} == alone
    assert set(pairs[0]) == {"prompt", *Arithmetic(pairs=True).columns}


def test_a_compact_style_is_possible():
    task = Arithmetic(template="{question}=", demonstration="<reasoning></reasoning><answer>{answer}</answer>")
    example = task.examples("sft")[0]
    assert example["prompt"] == f"{example['question']}="
    assert example["completion"] == f"<reasoning></reasoning><answer>{example['answer']}</answer>"


def test_the_corpus_holds_prompts_with_demonstrations_and_no_held_out_question():
    task = Arithmetic(operations=("+",), max_operand=9)
    held = {example["question"] for example in task.examples("eval")}
    asked = {re.match(r"What is (.+)\?", text)[1] for text in task.corpus()}
    assert not asked & held
    assert all(text.endswith("</answer>") for text in task.corpus()[:5])


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"max_operand": 5}, r"Arithmetic\.max_operand: expected int >= 9, got 5"),
        ({"noise": 1.5}, r"Arithmetic\.noise: expected 0 <= float <= 1, got 1\.5"),
        ({"noise": float("nan")}, r"Arithmetic\.noise: .*, got nan"),
        ({"eval_size": 0}, r"Arithmetic\.eval_size: expected int >= 1, got 0"),
        ({"operations": ("+", "/")}, r"operations is \('\+', '/'\); it must hold at least one of '\*', '\+', '-'"),
        ({"operations": ()}, r"operations is \(\)"),
        ({"template": "{answer}"}, r"template: unknown placeholder \{answer\}\..*Columns: question"),
        ({"demonstration": "so it is"}, r"demonstration: 'so it is' lacks the placeholder \{answer\}"),
    ],
)
def test_parameters_are_checked(parameters, message):
    with pytest.raises(ConfigError, match=message):
        Arithmetic(**parameters)


def test_the_question_may_be_asked_in_a_conversation():
    plain, chat = (Arithmetic(template="{question}?", chat=chat) for chat in (False, True))
    text = plain.examples("train")[0]["prompt"]
    assert chat.examples("train")[0]["prompt"] == [{"role": "user", "content": text}]
    told = Arithmetic(template="{question}?", chat=True, system="Be brief.").examples("sft")[0]
    assert told["prompt"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": plain.examples("sft")[0]["prompt"]},
    ]
    assert list(chat.corpus()[:3]) == list(plain.corpus()[:3])
    with pytest.raises(
        ConfigError, match=r"task.arithmetic.system needs a conversation: set task.arithmetic.chat = True"
    ):
        Arithmetic(system="Be brief.")
