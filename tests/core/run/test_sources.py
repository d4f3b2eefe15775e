"""A run remembers what the names of its sources referred to when it began."""

import json

from dovetail.run.sources import SOURCES, kept_in, stands_for


def test_a_run_looks_a_name_up_once_and_the_next_process_not_at_all(tmp_path):
    answers = iter(["first", "second", "third"])
    with kept_in(tmp_path):
        assert [stands_for("a", lambda: next(answers)) for _ in range(2)] == ["first", "first"]
    with kept_in(tmp_path):
        assert stands_for("a", lambda: next(answers)) == "first"
    assert json.loads((tmp_path / SOURCES).read_text()) == {"a": "first"}
    assert stands_for("a", lambda: next(answers)) == "second"


def test_a_file_has_the_name_that_its_run_calls_it_by(tmp_path):
    (tmp_path / "files.json").write_text(json.dumps({"adapters/x": "/work"}))
    with kept_in(tmp_path):
        assert stands_for("adapter adapters/x", lambda: "first") == "first"
    with kept_in(tmp_path):
        assert stands_for("adapter /work/adapters/x", lambda: "second") == "first"


def test_who_only_reads_a_run_notes_nothing(tmp_path):
    with kept_in(tmp_path, writes=False):
        assert stands_for("a", lambda: "now") == "now"
    assert not (tmp_path / SOURCES).exists()
