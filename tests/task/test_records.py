import json

import pytest

import dovetail
from dovetail.errors import ConfigError, DataError
from dovetail_task.records import Records


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "train.jsonl"
    rows = ({"query": f"question {i}", "solution": f"so {i}", "answer": i, "tags": ["a"]} for i in range(40))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("name", ["records", "jsonl", "csv", "parquet"])
def test_it_answers_to_the_names_of_the_formats(name):
    assert dovetail.get("task", name).name == "records"


def test_columns_of_every_type_are_passed_on(path):
    task = Records(path=str(path), prompt_column="query", eval_path=str(path))
    assert task.columns == ("query", "solution", "answer", "tags")
    assert task.examples("train")[3] == {
        "prompt": "question 3",
        "query": "question 3",
        "solution": "so 3",
        "answer": 3,
        "tags": ["a"],
    }


def test_without_an_evaluation_file_a_share_is_held_out(path):
    task = Records(path=str(path), prompt_column="query", completion_column="solution", eval_share=0.25)
    train, held, sft = ({e["prompt"] for e in task.examples(split)} for split in ("train", "eval", "sft"))
    assert train == sft
    assert not train & held
    assert len(train) + len(held) == 40
    assert held


def test_an_evaluation_file_leaves_all_of_the_other_to_training(path, tmp_path):
    other = tmp_path / "test.csv"
    other.write_text("answer,query\n1,why?\n")
    task = Records(path=str(path), eval_path=str(other), prompt_column="query")
    assert len(task.examples("train")) == 40
    assert task.examples("eval")[0] == {"prompt": "why?", "query": "why?", "answer": "1"}
    assert task.columns == ("query", "answer")


def test_templates_are_filled_from_the_columns(path):
    task = Records(
        path=str(path), prompt_column="query", completion_column="solution", template="{query} {{{answer}}}\n"
    )
    example = task.examples("sft")[0]
    assert example["prompt"] == f"{example['query']} {{{example['answer']}}}\n"
    assert example["completion"] == example["solution"]
    assert task.corpus()[0] == example["prompt"] + example["completion"]


def test_without_demonstrations_the_corpus_is_the_prompts(path):
    task = Records(path=str(path), prompt_column="query", eval_path=str(path))
    assert list(task.corpus()) == [f"question {i}" for i in range(40)]


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"path": None}, DataError, "--set task.records.path=FILE"),
        (
            {"prompt_column": "qery"},
            DataError,
            r"no column 'qery' \(task.records.prompt_column\). Did you mean 'query'\?",
        ),
        ({"prompt_column": "answer"}, DataError, r"train.jsonl:1: column 'answer' holds int, not text"),
        (
            {"completion_column": "solutoin"},
            DataError,
            r"\(task.records.completion_column\). Did you mean 'solution'\?",
        ),
        (
            {"template": "{qury}"},
            ConfigError,
            r"task.records.template: unknown placeholder \{qury\}. Did you mean 'query'\?",
        ),
        ({"template": "?"}, ConfigError, r"lacks the placeholder \{query\}"),
        ({"eval_share": 0.0}, DataError, r"task.records.eval_share = 0.0: no record is held out"),
    ],
)
def test_mistakes_are_explained(path, parameters, error, message):
    task = Records(**{"path": str(path), "prompt_column": "query", **parameters})
    with pytest.raises(error, match=message):
        task.examples("train")


def test_demonstrations_need_a_column(path):
    with pytest.raises(DataError, match="--set task.records.completion_column=COLUMN, or set sft.steps = 0"):
        Records(path=str(path), prompt_column="query").examples("sft")


def test_the_share_is_a_share():
    with pytest.raises(ConfigError, match="task.records.eval_share is 2; it must be from 0 to 1"):
        Records(eval_share=2)
