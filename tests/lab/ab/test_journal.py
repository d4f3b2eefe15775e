"""The journal of a test: lines that are chained by their hashes."""

import pytest

from dovetail.errors import RunError
from dovetail_lab.ab.journal import FILE, Journal


def looked(journal: Journal, *numbers: int) -> None:
    for number in numbers:
        journal.append("looked", {"look": number, "verdicts": {}})


def test_lines_are_chained(tmp_path):
    journal = Journal(tmp_path)
    looked(journal, 1, 2, 3)
    assert journal.broken_at() is None
    lines = (tmp_path / FILE).read_text().splitlines(keepends=True)
    (tmp_path / FILE).write_text(lines[0] + lines[1].replace('"look": 2', '"look": 7') + lines[2])
    assert journal.broken_at() == 2


@pytest.mark.parametrize("kept", [1, 40])
def test_a_line_that_a_kill_or_a_full_disk_has_cut_off_spoils_no_other(tmp_path, kept):
    journal = Journal(tmp_path)
    looked(journal, 1, 2)
    whole, last = (tmp_path / FILE).read_bytes().splitlines(keepends=True)
    (tmp_path / FILE).write_bytes(whole + last[:kept])
    looked(journal, 2, 3)
    assert [entry["look"] for _, entry in journal.of("looked")] == [1, 2, 3]
    assert journal.broken_at() is None


def test_a_line_in_the_middle_that_cannot_be_read_is_told(tmp_path):
    journal = Journal(tmp_path)
    looked(journal, 1)
    with (tmp_path / FILE).open("a") as file:
        file.write("{\n")
    with pytest.raises(RunError, match=r"journal\.jsonl:2: not valid JSON"):
        looked(journal, 2)
