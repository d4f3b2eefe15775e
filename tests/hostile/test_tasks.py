"""Files of prompts that are broken, odd or in another format than their suffix: refused with file and line."""

import gzip
import io
import os

import pytest
from tests.hostile.case import attempt_call

from dovetail.errors import DovetailError
from dovetail_task.task.records import Records

GOOD = '{"prompt": "a", "completion": "b"}\n'


def parquet(**columns) -> bytes:
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet as files

    written = io.BytesIO()
    files.write_table(arrow.table(columns), written)
    return written.getvalue()


def jsonl(content: str | bytes, pattern: str) -> tuple:
    return "t.jsonl", content, pattern


def csv(content: str | bytes, pattern: str) -> tuple:
    return "t.csv", content, pattern


CASES = {
    "empty": jsonl("", "has no records"),
    "blank lines alone": jsonl("\n\n  \n", "has no records"),
    "a broken line": jsonl(GOOD + '{"prompt": \n', r"t\.jsonl:2: not valid JSON"),
    "half a last line": jsonl(GOOD + '{"prompt": "a', r"t\.jsonl:2: not valid JSON"),
    "two objects in a line": jsonl(GOOD.strip() + GOOD, r"t\.jsonl:1: not valid JSON"),
    "an array": jsonl('[{"prompt": "a"}]\n', r"t\.jsonl:1: holds a JSON list"),
    "a number": jsonl("3\n", r"t\.jsonl:1: holds a JSON int"),
    "null": jsonl("null\n", r"t\.jsonl:1: holds a JSON NoneType"),
    "no prompt": jsonl('{"question": "a"}\n', r"has no column 'prompt' \(.*Columns: question"),
    "no prompt in the second": jsonl(GOOD + '{"completion": "b"}\n', r"t\.jsonl:2: lacks the column 'prompt'"),
    "mixed types": jsonl(
        GOOD + '{"prompt": 3, "completion": "b"}\n', r"t\.jsonl:2: column 'prompt' holds int, not text"
    ),
    "a prompt that is null": jsonl('{"prompt": null}\n', r"t\.jsonl:1: column 'prompt' holds null"),
    "a prompt that is empty": jsonl('{"prompt": "  "}\n', r"t\.jsonl:1: column 'prompt' is empty"),
    "a conversation without roles": jsonl('{"prompt": [{"content": "a"}]}\n', r"t\.jsonl:1: column 'prompt'"),
    "an empty conversation": jsonl('{"prompt": []}\n', r"t\.jsonl:1: column 'prompt'"),
    "a key twice": jsonl('{"prompt": "a", "prompt": "b"}\n', r"t\.jsonl:1: .*'prompt'.*twice"),
    "a number of 10,000 digits": jsonl(f'{{"prompt": "a", "n": {"9" * 10_000}}}\n', r"t\.jsonl:1: not valid JSON"),
    "NaN": jsonl(
        GOOD + '{"prompt": "a", "n": NaN}\n', r"t\.jsonl:2: not valid JSON: NaN is not a JSON number; write null"
    ),
    "infinity in a list": jsonl(
        '{"prompt": "a", "n": [-Infinity]}\n', r"t\.jsonl:1: not valid JSON: -Infinity is not a"
    ),
    "a number that overflows": jsonl('{"prompt": "a", "n": 1e999}\n', r"t\.jsonl:1: not valid JSON: 1e999 is beyond"),
    "brackets 100,000 deep": jsonl("[" * 100_000 + "\n", r"t\.jsonl:1: not valid JSON"),
    "invalid UTF-8": jsonl(GOOD.encode() + b'{"prompt": "\xff"}\n', r"t\.jsonl:2: not valid UTF-8"),
    "half a surrogate pair": jsonl('{"prompt": "\\ud800"}\n', r"t\.jsonl:1: .*surrogate"),
    "UTF-16": jsonl(GOOD.encode("utf-16"), r"t\.jsonl:1: not valid UTF-8"),
    "gzip": jsonl(gzip.compress(GOOD.encode()), r"t\.jsonl:1: .*gzip"),
    "a binary file": jsonl(b"\x89PNG\r\n\x1a\n\x00\x00", r"t\.jsonl:1: not valid UTF-8"),
    "zeros": jsonl(b"\0" * 4096, r"t\.jsonl:1: not valid JSON"),
    "a line of 5 MB": jsonl('{"prompt": "' + "a" * 5_000_000, r"t\.jsonl:1: not valid JSON.{0,300}$"),
    "an escape sequence in a key": jsonl('{"\\u001b[31m": "a"}\n', "has no column 'prompt'"),
    "gzip by its ending": ("t.jsonl.gz", gzip.compress(GOOD.encode()), r"unknown suffix '\.gz'; known: "),
    "JSON by its ending": ("t.json", GOOD, r"unknown suffix '\.json'; known: "),
    "no ending": ("t", GOOD, "unknown suffix"),
    "csv without records": csv("prompt\n", "has no records"),
    "csv, empty": csv("", "has no records"),
    "csv with a column twice": csv("prompt,prompt\na,b\n", r"t\.csv:1: the header names the column 'prompt' twice"),
    "csv with a field too many": csv("prompt\na,b\n", r"t\.csv:2: 2 fields, but the header names 1"),
    "csv with an open quote": csv('prompt\n"a\n', r"t\.csv:2: invalid CSV"),
    "csv with semicolons": csv("prompt;completion\na;b\n", "has no column 'prompt'"),
    "parquet that is not": ("t.parquet", b"PAR1 but no more", "not a valid parquet file"),
    "parquet cut short": ("t.parquet", lambda: parquet(prompt=["a"] * 99)[:-20], "not a valid parquet file"),
    "parquet, empty": ("t.parquet", b"", "not a valid parquet file"),
    "parquet of another schema": ("t.parquet", lambda: parquet(question=["a"]), "has no column 'prompt'"),
    "parquet of numbers": ("t.parquet", lambda: parquet(prompt=[1, 2]), "row 1: column 'prompt' holds int"),
    "parquet with null": ("t.parquet", lambda: parquet(prompt=["a", None]), "row 2: column 'prompt' holds null"),
    "parquet without rows": ("t.parquet", lambda: parquet(prompt=[]), "has no records"),
}


@pytest.mark.parametrize(("name", "content", "pattern"), CASES.values(), ids=CASES)
def test_a_task(name, content, pattern, tmp_path):
    made = content() if callable(content) else content
    (tmp_path / name).write_bytes(made if isinstance(made, bytes) else made.encode())
    attempt_call(lambda: Records(path=str(tmp_path / name)).examples("train")[0], DovetailError, pattern)


@pytest.mark.parametrize("path", ["missing.jsonl", ".", "", "a\0b.jsonl"])
def test_a_place_where_no_task_is(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    attempt_call(
        lambda: Records(path=path).examples("train")[0],
        DovetailError,
        r"there is no file .*missing\.jsonl'|is a folder|no data|null character",
    )


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "t.jsonl")
    attempt_call(lambda: Records(path=str(tmp_path / "t.jsonl")).examples("train"), DovetailError, "is not a file")


@pytest.mark.parametrize("name", ["t.jsonl", "t.csv"])
def test_a_line_that_memory_does_not_hold(name, tmp_path, monkeypatch):
    monkeypatch.setattr("dovetail_task._text_files.LONGEST", 1000)
    (tmp_path / name).write_bytes(bytes(10_000))
    attempt_call(
        lambda: Records(path=str(tmp_path / name)).examples("train"),
        DovetailError,
        ":1: a line of more than 1,000 bytes",
    )


@pytest.mark.slow
def test_a_line_of_100_megabytes_is_a_record_like_any_other(tmp_path):
    import json

    (tmp_path / "t.jsonl").write_text(json.dumps({"prompt": "a" * 100_000_000}) + "\n" + GOOD * 9)
    assert len(Records(path=str(tmp_path / "t.jsonl"), eval_path=str(tmp_path / "t.jsonl")).examples("train")) == 10
