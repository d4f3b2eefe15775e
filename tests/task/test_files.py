import csv
import json
import os
import pickle
import sys

import pytest

from dovetail.errors import DataError
from dovetail_task._files import first_columns, held_out, open_table, source_of

TEXT = {"prompt": "task.records.prompt_column"}
RECORDS = [
    {"prompt": "plain", "answer": "1"},
    {"prompt": 'with "quotes", commas\nand lines', "answer": ""},
    {"prompt": "naïve 数 🦉", "answer": "3"},
]


def write(path, records):
    """Write the same records in the format of the path's suffix."""
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
    elif path.suffix == ".csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(records[0]))
            writer.writeheader()
            writer.writerows(records)
    else:
        arrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        parquet.write_table(arrow.Table.from_pylist(records), path)
    return path


@pytest.fixture(params=["jsonl", "csv", "parquet"])
def table(request, tmp_path):
    return open_table(source_of(write(tmp_path / f"data.{request.param}", RECORDS)), TEXT)


def test_every_format_gives_the_same_records_in_any_order(table):
    assert list(table) == RECORDS
    assert [table[i] for i in (2, 0, 1, -1)] == [RECORDS[i] for i in (2, 0, 1, -1)]
    assert list(table[1:]) == RECORDS[1:]
    assert table.columns == ("prompt", "answer")
    with pytest.raises(IndexError):
        table[3]


def test_tables_survive_pickling(table):
    assert list(pickle.loads(pickle.dumps(table))) == RECORDS


def test_first_columns_reads_no_further_than_it_must(tmp_path):
    path = tmp_path / "data.jsonl"
    path.write_text('{"prompt": "a", "n": 1}\nbroken')
    assert first_columns(source_of(path)) == ("prompt", "n")


def test_blank_lines_a_byte_order_mark_and_a_missing_last_newline_do_no_harm(tmp_path):
    jsonl, table = tmp_path / "data.jsonl", tmp_path / "data.csv"
    jsonl.write_bytes(b'\xef\xbb\xbf{"prompt": "a"}\r\n\n  \n{"prompt": "b"}')
    table.write_bytes(b'\xef\xbb\xbfprompt\r\na\r\n\r\n"b"')
    for path in (jsonl, table):
        opened = open_table(source_of(path), TEXT)
        assert [record["prompt"] for record in (opened[1], opened[0])] == ["b", "a"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "data.jsonl has no records"),
        ("\n\n", "data.jsonl has no records"),
        ('{"prompt": "a"}\n{"prompt": }', "data.jsonl:2: not valid JSON: Expecting value at column 12"),
        ('{"prompt": "a"}\n\n[1]', "data.jsonl:3: holds a JSON list; write one object per line"),
        ('{"prompt": 3}', "data.jsonl:1: column 'prompt' holds int, not text"),
        ('{"prompt": null}', "data.jsonl:1: column 'prompt' holds null, not text"),
        ('{"prompt": " "}', "data.jsonl:1: column 'prompt' is empty"),
        (r'{"prompt": "\ud800"}', "data.jsonl:1: column 'prompt' holds half of a surrogate pair"),
        (
            '{"promt": "a", "n": 1}',
            "data.jsonl has no column 'prompt' (task.records.prompt_column). Did you mean 'promt'? Columns: n, promt",
        ),
        ('{"prompt": "a", "n": 1}\n{"prompt": "b"}', "data.jsonl:2: lacks the column 'n', which the first record has"),
        ("[" * 200_000, "data.jsonl:1: not valid JSON"),
        ("9" * 5000, "data.jsonl:1: not valid JSON"),
    ],
)
def test_a_broken_jsonl_names_file_and_line(tmp_path, content, message):
    path = tmp_path / "data.jsonl"
    path.write_text(content)
    with pytest.raises(DataError) as raised:
        open_table(source_of(path), TEXT)
    assert f"{tmp_path}/{message}" in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "data.csv has no records"),
        (b"prompt\n", "data.csv has no records"),
        (b'prompt,n\n"two\nlines",1\na\n', "data.csv:4: 1 fields, but the header names 2"),
        (
            b'prompt,n\na,1\n"b,1\nc,1\n',
            "data.csv:3: invalid CSV in the record that begins here: unexpected end of data",
        ),
        (b"prompt,n,n\na,1,2\n", "data.csv:1: the header names the column 'n' twice"),
        (b"prompt\na\n\xff\n", "data.csv:3: not valid UTF-8: invalid start byte at byte 1"),
    ],
)
def test_a_broken_csv_names_file_and_line(tmp_path, content, message):
    path = tmp_path / "data.csv"
    path.write_bytes(content)
    with pytest.raises(DataError) as raised:
        open_table(source_of(path), TEXT)
    assert f"{tmp_path}/{message}" in str(raised.value)


def test_a_broken_parquet_names_file_and_row(tmp_path):
    path = write(tmp_path / "data.parquet", [{"prompt": "a"}, {"prompt": None}])
    with pytest.raises(DataError, match="data.parquet: row 2: column 'prompt' holds null, not text"):
        open_table(source_of(path), TEXT)
    path.write_bytes(b"no parquet at all")
    with pytest.raises(DataError, match="data.parquet: not a valid parquet file: "):
        open_table(source_of(path), TEXT)


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DataError, match=r"reading parquet needs pyarrow: pip install .*\[parquet\]"):
        open_table(source_of(tmp_path / "data.parquet"), TEXT)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none.jsonl", "'.*none.jsonl' cannot be read: No such file or directory"),
        ("data.xlsx", r"unknown suffix '\.xlsx'; known: \.csv, \.jsonl, \.parquet"),
        ("folder.jsonl", "'.*folder.jsonl' is a folder"),
    ],
)
def test_a_file_that_cannot_be_read(tmp_path, name, message):
    (tmp_path / "folder.jsonl").mkdir()
    with pytest.raises(DataError, match=message):
        open_table(source_of(tmp_path / name), TEXT)


def test_a_file_that_changes_under_a_run_is_noticed(tmp_path):
    path = write(tmp_path / "data.jsonl", RECORDS)
    table = open_table(source_of(path), TEXT)
    write(path, RECORDS[:2])
    os.utime(path, ns=(0, 0))
    with pytest.raises(DataError, match="has changed since it was opened"):
        table[0]
    path.unlink()
    with pytest.raises(DataError, match="can no longer be read: No such file"):
        table[0]


def test_held_out_records_are_chosen_by_their_prompt_alone(tmp_path):
    records = [{"prompt": f"question {i % 50}", "n": i} for i in range(200)]
    kept, held = held_out(open_table(source_of(write(tmp_path / "a.jsonl", records)), TEXT), 0.2, "share")
    assert not {r["prompt"] for r in kept} & {r["prompt"] for r in held}
    assert sorted(r["n"] for r in [*kept, *held]) == list(range(200))
    _, later = held_out(
        open_table(source_of(write(tmp_path / "b.jsonl", records[100:] + records[:10])), TEXT), 0.2, "share"
    )
    assert {r["prompt"] for r in later} == {r["prompt"] for r in held}


def test_a_share_that_leaves_a_side_empty_is_refused(tmp_path):
    table = open_table(source_of(write(tmp_path / "a.jsonl", RECORDS)), TEXT)
    said = r"a.eval_share = 0\.0 holds out none of the 3 records of .*a\.jsonl for evaluation: set a greater share, add"
    with pytest.raises(DataError, match=said + r" records, or name a file for evaluation in a.eval_path"):
        held_out(table, 0.0, "a.eval_share")
    with pytest.raises(DataError, match=r"share = 1\.0 holds out all of the 3 records .*: set a smaller share"):
        held_out(table, 1.0, "share")


def test_a_field_of_a_csv_file_may_be_long(tmp_path):
    """Python's own limit is 131,072 characters, which the tests of a problem may exceed."""
    records = [{"prompt": "a", "tests": "x" * 200_000}, {"prompt": "b", "tests": '"\r\n' * 100_000}]
    table = open_table(source_of(write(tmp_path / "data.csv", records)), TEXT)
    assert list(table) == records
