import json
import os
from pathlib import Path

import pytest
from tests.model.source.conftest import hub  # noqa: F401 - a fixture

from dovetail.errors import ConfigError, DataError
from dovetail_task.task.gsm8k import Gsm8k, split_answer

EXTRACT = Path(__file__).parents[2] / "fixtures" / "gsm8k"
"""Records of the data set itself: thousands separators, negative answers, `<` in a solution, none of its calculations marked."""


def write(path, count, start=0):
    rows = (
        {"question": f"What is 500 times {i}?", "answer": f"500*{i}=<<500*{i}={500 * i}>>{500 * i:,}\n#### {500 * i:,}"}
        for i in range(start, start + count)
    )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def folder(tmp_path):
    write(tmp_path / "train.jsonl", 30)
    write(tmp_path / "test.jsonl", 5, start=100)
    return tmp_path


def test_a_record_becomes_an_example(folder):
    example = Gsm8k(path=str(folder), template="short").examples("sft")[3]
    assert example == {
        "prompt": "What is 500 times 3?\n",
        "question": "What is 500 times 3?",
        "answer": "1500",
        "solution": "500*3=1,500",
        "completion": "<reasoning>500*3=1,500</reasoning><answer>1500</answer>",
    }


def test_the_splits_are_the_files(folder):
    task = Gsm8k(path=str(folder))
    assert len(task.examples("train")) == len(task.examples("sft")) == 30
    assert [example["answer"] for example in task.examples("eval")] == [str(500 * i) for i in range(100, 105)]
    assert "completion" not in task.examples("train")[0]
    assert set(task.columns) == task.examples("eval")[0].keys() - {"prompt"}


@pytest.mark.parametrize("single", [True, False])
def test_without_a_test_file_a_share_is_held_out(folder, single):
    (folder / "test.jsonl").unlink()
    task = Gsm8k(path=str(folder / "train.jsonl" if single else folder), eval_share=0.3)
    train, held = ({e["question"] for e in task.examples(split)} for split in ("train", "eval"))
    assert held
    assert not train & held
    assert len(train | held) == 30


def test_max_examples_limits_every_split(folder):
    task = Gsm8k(path=str(folder), max_examples=3)
    assert [len(task.examples(split)) for split in ("train", "eval", "sft")] == [3, 3, 3]
    assert len(task.corpus()) == 3


@pytest.mark.parametrize(
    ("template", "begins"), [("instruction", "Solve the problem"), ("Q: {question} A:", "Q: What is")]
)
def test_templates_by_name_or_in_full(folder, template, begins):
    prompt = Gsm8k(path=str(folder), template=template).examples("train")[0]["prompt"]
    assert prompt.startswith(begins)
    assert "What is 500 times 0?" in prompt


@pytest.mark.parametrize(
    ("text", "solution", "answer"),
    [
        ("a\n#### 1,234,567", "a", "1234567"),
        ("#### 5 is not it\n#### -7.5 ", "#### 5 is not it", "-7.5"),
        ("<<1+1=2>>2 <b << c\n####3", "2 <b << c", "3"),
        ("<<" * 50_000 + "\n#### 1", "<<" * 50_000, "1"),
    ],
)
def test_split_answer(text, solution, answer):
    assert split_answer(text) == (solution, answer)


def test_files_in_shards_spelling_are_found(folder):
    (folder / "train.jsonl").rename(folder / "train-00000-of-00001.jsonl")
    assert len(Gsm8k(path=str(folder)).examples("train")) == 30
    write(folder / "train-00001-of-00002.jsonl", 1)
    with pytest.raises(
        DataError, match="more than one train file: train-00000-of-00001.jsonl, train-00001-of-00002.jsonl"
    ):
        Gsm8k(path=str(folder)).examples("train")


def test_a_missing_path_says_how_to_set_it(tmp_path):
    for path in (None, "", str(tmp_path / "none")):
        with pytest.raises(DataError, match="--set task.gsm8k.path=FOLDER"):
            Gsm8k(path=path).examples("train")


def test_a_folder_without_training_data_says_what_it_holds(tmp_path):
    (tmp_path / "notes.txt").touch()
    with pytest.raises(DataError, match=r"does not have a train\.csv\|\.jsonl\|\.parquet; found: notes\.txt"):
        Gsm8k(path=str(tmp_path)).examples("train")


@pytest.mark.parametrize("answer", ["no mark", "#### ", "####"])
def test_a_record_without_final_answer_names_its_line(folder, answer):
    with (folder / "train.jsonl").open("a") as file:
        file.write(json.dumps({"question": "?", "answer": answer}) + "\n")
    with pytest.raises(DataError, match="train.jsonl:31: column 'answer' does not end with '#### NUMBER'"):
        Gsm8k(path=str(folder)).examples("train")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"template": "shrot"},
            r"unknown template 'shrot'. Did you mean 'short'\? Known: instruction, short; or write a text",
        ),
        ({"template": "{answer}"}, r"unknown placeholder \{answer\}.*Columns: question"),
        ({"demonstration": "{solution}"}, r"lacks the placeholder \{answer\}"),
        ({"max_examples": 0}, r"Gsm8k.max_examples: expected int >= 1, got 0"),
    ],
)
def test_parameters_are_checked(parameters, message):
    with pytest.raises(ConfigError, match=message):
        Gsm8k(**parameters)


def test_records_of_the_data_set():
    task = Gsm8k(path=str(EXTRACT))
    answers = {split: [example["answer"] for example in task.examples(split)] for split in ("train", "eval")}
    assert answers["train"] == ["72", "10", "5", "1000", "50", "1080", "109200000", "-7", "-12"]
    assert answers["eval"] == ["18", "3", "70000", "125", "2125", "-10"]
    check_solutions(task)


@pytest.mark.skipif("DOVETAIL_GSM8K" not in os.environ, reason="DOVETAIL_GSM8K does not name the data set's folder")
def test_the_whole_data_set():
    task = Gsm8k(path=os.environ["DOVETAIL_GSM8K"])
    assert [len(task.examples(split)) for split in ("train", "eval")] == [7473, 1319]
    check_solutions(task)


def check_solutions(task):
    for example in [*task.examples("train"), *task.examples("eval")]:
        assert abs(float(example["answer"])) < 1e9
        assert "<<" not in example["solution"]
        assert "####" not in example["solution"]


def test_the_question_may_be_asked_in_a_conversation(folder):
    plain, chat = (Gsm8k(path=str(folder), template="short", chat=chat) for chat in (False, True))
    text = plain.examples("train")[0]["prompt"]
    assert chat.examples("train")[0]["prompt"] == [{"role": "user", "content": text}]
    told = Gsm8k(path=str(folder), template="short", chat=True, system="Be brief.").examples("sft")[0]
    assert told["prompt"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}]
    assert told["completion"] == plain.examples("sft")[0]["completion"]
    assert list(chat.corpus()[:3]) == list(plain.corpus()[:3])


def test_a_name_on_the_hub(hub):  # noqa: F811
    rows = {name: json.dumps({"question": f"{name}?", "answer": "So.\n#### 7"}).encode() for name in ("train", "test")}
    files = {f"main/{name}.jsonl": row for name, row in rows.items()} | {"socratic/train.jsonl": b"{}"}
    hub.add("acme/gsm8k", files, kind="datasets")
    task = Gsm8k(path="acme/gsm8k")
    assert [task.examples(split)[0]["question"] for split in ("train", "eval")] == ["train?", "test?"]
    hub.add("acme/flat", {f"{name}.jsonl": row for name, row in rows.items()}, kind="datasets")
    assert len(Gsm8k(path="acme/flat").examples("train")) == 1
