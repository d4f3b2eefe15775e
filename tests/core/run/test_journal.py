"""Records go back to where a checkpoint was taken."""

import contextlib

import pytest

from dovetail.errors import RunError
from dovetail.run.journal import Journal
from dovetail.run.summary import read_lines


def test_what_was_written_after_a_checkpoint_is_cut(tmp_path):
    first = Journal(tmp_path)
    first.metrics("rl", 1, {"reward/mean": 0.5})
    first.samples("rl", 1, [{"completion": "héllo\nworld"}])
    position = first.position()
    first.metrics("rl", 2, {"reward/mean": 0.7})
    first.timings("rl", 2, {"time/step": 1.0})
    first.close()
    second = Journal(tmp_path)
    second.rewind(position)
    second.metrics("rl", 2, {"reward/mean": 0.7})
    second.close()
    assert read_lines(tmp_path / "metrics.jsonl") == [
        {"phase": "rl", "step": 1, "reward/mean": 0.5},
        {"phase": "rl", "step": 2, "reward/mean": 0.7},
    ]
    assert read_lines(tmp_path / "timings.jsonl") == []
    assert read_lines(tmp_path / "samples.jsonl") == [{"phase": "rl", "step": 1, "completion": "héllo\nworld"}]


def test_a_run_that_begins_again_begins_with_empty_records(tmp_path):
    first = Journal(tmp_path)
    first.metrics("sft", 1, {"sft/loss": 2.0})
    first.close()
    second = Journal(tmp_path)
    second.rewind({})
    second.close()
    assert (tmp_path / "metrics.jsonl").read_bytes() == b""


def test_a_full_disk_is_one_line(tmp_path):
    journal = Journal(tmp_path)
    journal._files["metrics.jsonl"].close()
    full = open("/dev/full", "ab")  # noqa: SIM115
    journal._files["metrics.jsonl"] = full
    with pytest.raises(RunError, match="'/dev/full' cannot be written: No space left on device; checkpoints are kept"):
        journal.metrics("rl", 1, {"reward/mean": 0.5})
    with contextlib.suppress(OSError):
        full.close()
    del journal._files["metrics.jsonl"]
    journal.close()
