import json
import re

import pytest

import dovetail
from dovetail.errors import ConfigError, DataError
from dovetail_task.task.records import Records


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
        (
            {"eval_share": 0.0},
            DataError,
            r"task.records.eval_share = 0.0 holds out none of .*in task.records.eval_path",
        ),
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
    with pytest.raises(ConfigError, match="Records.eval_share: expected 0 <= float <= 1, got 2"):
        Records(eval_share=2)


SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": "6 * 7?"}
REPLY = {"role": "assistant", "content": "42"}


def written(path, *prompts, **columns):
    path.write_text("".join(json.dumps({"prompt": prompt, **columns}) + "\n" for prompt in prompts))
    return {"path": str(path), "eval_path": str(path)}


def test_a_text_may_be_said_by_the_user(tmp_path):
    files = written(tmp_path / "a.jsonl", "6 * 7?", completion="42")
    assert Records(**files, chat=True).examples("train")[0]["prompt"] == [USER]
    task = Records(**files, chat=True, system="Be brief.", template="{prompt}!", completion_column="completion")
    example = task.examples("sft")[0]
    assert example["prompt"] == [SYSTEM, USER | {"content": "6 * 7?!"}]
    assert example["completion"] == "42"
    assert task.corpus()[0] == "Be brief.\n6 * 7?!\n42"


def test_conversations_are_prompts_and_their_replies_demonstrations(tmp_path):
    files = written(tmp_path / "a.jsonl", [USER, REPLY], [SYSTEM, USER, REPLY, USER, REPLY])
    task = Records(**files, chat=True, system="Be kind.")
    kind = {"role": "system", "content": "Be kind."}
    assert [e["prompt"] for e in task.examples("train")] == [[kind, USER], [SYSTEM, USER, REPLY, USER]]
    assert [e["completion"] for e in task.examples("sft")] == ["42", "42"]
    assert "completion" not in task.examples("eval")[0]


def test_conversations_in_parquet(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    file = tmp_path / "a.parquet"
    parquet.write_table(arrow.Table.from_pylist([{"prompt": [SYSTEM, USER], "answer": "42"}]), file)
    task = Records(path=str(file), eval_path=str(file))
    assert task.examples("eval")[0] == {"prompt": [SYSTEM, USER], "answer": "42"}


def test_copies_of_a_conversation_are_on_one_side(tmp_path):
    prompts = [[USER | {"content": f"{i % 20} * 7?"}] for i in range(60)]
    written(tmp_path / "a.jsonl", *prompts)
    task = Records(path=str(tmp_path / "a.jsonl"), eval_share=0.3)
    train, held = ({e["prompt"][0]["content"] for e in task.examples(split)} for split in ("train", "eval"))
    assert not train & held


@pytest.mark.parametrize(
    ("prompts", "options", "message"),
    [
        ([[]], {}, r"a\.jsonl:1: column 'prompt': \[\] is not a conversation to answer"),
        ([[REPLY]], {}, "is not a conversation to answer"),
        ([[USER, "42"]], {}, "message 1 is '42'; write {'role': ..., 'content': ...}"),
        ([[USER | {"content": None}]], {}, "message 0 has the content None, not text"),
        ([[USER], "6 * 7?"], {}, r"a\.jsonl:2: column 'prompt' holds text, but the first record holds a conversation$"),
        ([[USER, REPLY], [USER]], {}, "holds a conversation, but the first record holds a conversation with its reply"),
        ([[USER]], {"template": "{prompt}"}, r"holds a conversation, but task\.records\.template is for text"),
        ([{"role": "user"}], {}, "column 'prompt' holds dict, not text"),
    ],
)
def test_broken_conversations_are_refused_with_their_place(tmp_path, prompts, options, message):
    files = written(tmp_path / "a.jsonl", *prompts)
    with pytest.raises(DataError, match=message):
        Records(**files, **options).examples("train")


def test_a_conversation_without_reply_demonstrates_nothing(tmp_path):
    with pytest.raises(DataError, match="task records has no demonstrations"):
        Records(**written(tmp_path / "a.jsonl", [USER])).examples("sft")


def test_the_system_needs_a_conversation():
    with pytest.raises(
        ConfigError, match=r"task\.records\.system needs a conversation: set task\.records\.chat = True"
    ):
        Records(system="Be brief.")


@pytest.fixture
def two(path, tmp_path):
    """Two files, of which only the first has tags, and only the second a source of its own."""
    other = tmp_path / "other.csv"
    other.write_text("query,answer,solution,hint\nwhy?,1,because,think\nhow?,2,so,think\n")
    return (str(path), str(other))


def test_several_files_are_one_task(two):
    task = Records(path=two, prompt_column="query", eval_path=two[1])
    train = task.examples("train")
    assert len(train) == 42
    assert train[39] == {
        "prompt": "question 39",
        "query": "question 39",
        "solution": "so 39",
        "answer": 39,
        "tags": ["a"],
        "hint": None,
        "data_source": "train",
    }
    assert train[-1] == {
        "prompt": "how?",
        "query": "how?",
        "solution": "so",
        "answer": "2",
        "tags": None,
        "hint": "think",
        "data_source": "other",
    }
    assert task.columns == ("query", "solution", "answer", "hint"), "those of the evaluation, too"
    assert Records(path=two, prompt_column="query").columns[-2:] == ("hint", "data_source")
    held = Records(path=two, prompt_column="query", eval_share=0.5)
    assert len(held.examples("train")) + len(held.examples("eval")) == 42


def test_files_of_one_name_are_told_apart_and_a_source_of_their_own_stays(tmp_path):
    paths = []
    for folder, extra in (("a", {}), ("b", {}), ("c", {"data_source": "mine"})):
        (tmp_path / folder).mkdir()
        paths.append(str(tmp_path / folder / "train.jsonl"))
        (tmp_path / folder / "train.jsonl").write_text(json.dumps({"prompt": folder, **extra}) + "\n")
    task = Records(path=tuple(paths), eval_path=paths[0])
    assert [example["data_source"] for example in task.examples("train")] == ["a/train.jsonl", "b/train.jsonl", "mine"]


def test_what_is_wrong_with_one_of_several_files(two, tmp_path):
    with pytest.raises(DataError, match="train.jsonl' is named twice"):
        Records(path=(two[0], two[0]), prompt_column="query").examples("train")
    (tmp_path / "third.jsonl").write_text('{"query": "x"}\n{"answer": 3}\n')
    with pytest.raises(DataError, match="third.jsonl:2: lacks the column 'query'"):
        Records(path=(*two, str(tmp_path / "third.jsonl")), prompt_column="query").examples("train")
    (tmp_path / "third.jsonl").write_text('{"question": "x"}\n')
    with pytest.raises(DataError, match="third.jsonl:1: column 'query' holds null, not text"):
        Records(path=(*two, str(tmp_path / "third.jsonl")), prompt_column="query").examples("train")


@pytest.mark.parametrize(("side", "beside"), [("path", ".jsonl"), ("eval_path", ".csv")])
def test_a_file_that_is_not_there_is_named_with_its_setting_and_a_near_name(side, beside, tmp_path, monkeypatch):
    (tmp_path / f"train{beside}").write_text('{"prompt": "a"}\n')
    (tmp_path / "given.jsonl").write_text('{"prompt": "a"}\n')
    monkeypatch.chdir(tmp_path)
    task = Records(**{"path": "given.jsonl", side: f"tain{beside}"})
    said = f"task.records.{side}: there is no file '{tmp_path}/tain{beside}'. Did you mean 'train{beside}'?"
    with pytest.raises(DataError, match=f"^{re.escape(said)}$"):
        _ = task.columns
    with pytest.raises(DataError, match=r"there is no file '/none/here\.jsonl'$"):
        _ = Records(path="/none/here.jsonl").columns
