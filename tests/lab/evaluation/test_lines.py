"""A file of JSON lines that a resumed run continues."""

import json
import re

import pytest

from dovetail.errors import RunError
from dovetail_lab.evaluation.lines import open_lines

IDENTITY = {"weights": "a", "sampling": {"top_k": None, "stop": ()}}


def test_records_are_found_again(tmp_path):
    path = tmp_path / "new" / "out.jsonl"
    with open_lines(path, IDENTITY) as lines:
        assert list(lines.found) == []
        lines.append([{"a": "é\n"}, {"b": 1}])
    with open_lines(path, IDENTITY) as lines:
        assert list(lines.found) == [{"a": "é\n"}, {"b": 1}]
        lines.append([{"c": "\ud83d"}])
        assert len(list(lines.found)) == 3


@pytest.mark.parametrize("torn", [b'{"c"', b"x" * 3_000_000])
def test_half_a_line_is_cut(tmp_path, torn):
    path = tmp_path / "out.jsonl"
    with open_lines(path, IDENTITY) as lines:
        lines.append([{"a": 1}])
    whole = path.read_bytes()
    path.write_bytes(whole + torn)
    with open_lines(path, IDENTITY) as lines:
        lines.append([{"b": 2}])
    assert path.read_bytes() == whole + b'{"b": 2}\n'


def test_nothing_but_half_a_line_is_nothing(tmp_path):
    path = tmp_path / "out.jsonl"
    with open_lines(path, IDENTITY):
        pass
    path.write_bytes(b'{"a"')
    with open_lines(path, IDENTITY) as lines:
        assert list(lines.found) == []
    assert path.read_bytes() == b""


def test_a_file_of_something_else_is_refused_with_what_differs(tmp_path):
    path = tmp_path / "out.jsonl"
    with open_lines(path, IDENTITY):
        pass
    with (
        pytest.raises(RunError, match=r"made of something else \(weights: 'a' in it, 'b' here\)"),
        open_lines(path, IDENTITY | {"weights": "b"}),
    ):
        pass


def test_a_foreign_file_is_left_alone(tmp_path):
    path = tmp_path / "out.jsonl"
    path.write_text("my notes\n")
    with pytest.raises(RunError, match="exists and is not this command's"), open_lines(path, IDENTITY):
        pass
    assert path.read_text() == "my notes\n"


def test_a_broken_line_is_named(tmp_path):
    path = tmp_path / "out.jsonl"
    with open_lines(path, IDENTITY) as lines:
        lines.append([{"a": 1}])
    path.write_bytes(path.read_bytes() + b"junk\n")
    with open_lines(path, IDENTITY) as lines, pytest.raises(RunError, match=re.escape(f"{path}:2: not valid JSON")):
        list(lines.found)


def test_two_processes_do_not_write_one_file(tmp_path):
    path = tmp_path / "out.jsonl"
    with (
        open_lines(path, IDENTITY),
        pytest.raises(RunError, match="in use by another process"),
        open_lines(path, IDENTITY),
    ):
        pass


def test_the_note_says_what_it_is_made_of(tmp_path):
    with open_lines(tmp_path / "out.jsonl", IDENTITY):
        pass
    assert json.loads((tmp_path / "out.jsonl.json").read_text()) == {
        "weights": "a",
        "sampling": {"top_k": None, "stop": []},
    }
