"""Files are locked by one process, written atomically, and readable while they grow."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dovetail.errors import RunError
from dovetail.run import files
from dovetail.run.files import hold, read_lines, read_record, records, write_whole, writing
from dovetail_lab.sweep.store import is_held


def test_a_lock_is_held_until_its_file_is_closed(tmp_path):
    path = tmp_path / "lock"
    assert not is_held(path)
    with hold(path, "the folder"):
        assert is_held(path)
        with pytest.raises(RunError, match="^the folder is in use by another process$"):
            hold(path, "the folder")
    assert not is_held(path)
    hold(path, "the folder").close()


def test_who_waits_gets_a_lock_that_is_let_go(tmp_path, monkeypatch):
    path = tmp_path / "lock"
    first = hold(path, "it")
    monkeypatch.setattr(files.time, "sleep", lambda _: first.close())
    hold(path, "it", patience=60.0).close()


def test_a_killed_process_holds_nothing(tmp_path):
    path = tmp_path / "lock"
    code = (
        f"import os, pathlib; from dovetail.run.files import hold; file = hold(pathlib.Path({str(path)!r}), 'it');"
        " print('held', flush=True); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("held\n", -9)
    assert not is_held(path)


def test_a_file_is_written_whole_or_stays_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "record.json"
    write_whole(path, "old é")
    monkeypatch.setattr(os, "getpid", lambda: 7)
    (tmp_path / "record.json.7.tmp").mkdir()
    with pytest.raises(IsADirectoryError):
        write_whole(path, "new")
    assert path.read_bytes() == "old é".encode()


def test_a_full_disk_says_which_file(tmp_path, monkeypatch):
    def full(self, *arguments, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pathlib.Path.open", full)
    with pytest.raises(OSError, match="No space left on device: '.*record.json'$"):
        write_whole(tmp_path / "record.json", "new")
    refused = pytest.raises(RunError, match="'r/x' cannot be written: No space left on device; the old one is kept$")
    with refused, writing(Path("r/x"), "the old one is kept"):
        full(None)


def test_what_is_in_the_way_is_replaced_and_a_link_is_not_followed(tmp_path, monkeypatch):
    mine = tmp_path / "mine"
    mine.write_text("mine")
    monkeypatch.setattr(os, "getpid", lambda: 7)
    for name in ("record.json", "record.json.7.tmp"):
        (tmp_path / name).symlink_to(mine)
    write_whole(tmp_path / "record.json", "new \ud800")
    assert (tmp_path / "record.json").read_bytes() == b"new \\ud800"
    assert mine.read_text() == "mine"


def test_what_has_no_end_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "LARGEST", 10)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_text(f'{{"a": "{"x" * 20}"}}\n')
    for name, reason in (("pipe", "is not a file"), ("large", "more than 10 bytes")):
        with pytest.raises(RunError, match=reason):
            read_record(tmp_path / name)
        with pytest.raises(RunError, match=reason):
            read_lines(tmp_path / name)


def test_lines_are_read_while_the_file_grows(tmp_path):
    path = tmp_path / "metrics.jsonl"
    assert read_lines(path) == []
    path.write_text('{"phase": "sft", "step": 9}\n{"phase": "rl", "step": 1}\n{"phase": "rl", "st')
    assert read_lines(path) == [{"phase": "sft", "step": 9}, {"phase": "rl", "step": 1}]
    assert read_lines(path, "rl") == [{"phase": "rl", "step": 1}]


def test_a_completion_may_have_any_character(tmp_path):
    path = tmp_path / "samples.jsonl"
    path.write_text('{"completion": "a\u2028b\x85c"}\n', encoding="utf-8")
    assert read_lines(path) == [{"completion": "a\u2028b\x85c"}]


@pytest.mark.parametrize(
    ("line", "reason"), [("nonsense", "not valid JSON"), ("", "not valid JSON"), ("[3]", "not a record but [3]")]
)
def test_a_line_that_is_not_a_record_is_named(tmp_path, line, reason):
    path = tmp_path / "metrics.jsonl"
    path.write_text(f'{{"step": 1}}\n{line}\n{{"step": 2}}\n')
    found = records(path)
    assert next(found) == {"step": 1}
    with pytest.raises(RunError) as caught:
        next(found)
    assert str(caught.value).startswith(f"{path}:2: {reason}")
