"""Records are cut back to the step of the checkpoint from which a run resumes."""

import numpy as np
import pytest

from dovetail.errors import RunError
from dovetail.run.blocks import blocks
from dovetail.run.files import read_lines
from dovetail.run.journal import MESSAGES, Journal


def test_what_was_written_after_a_checkpoint_is_cut(tmp_path):
    first = Journal(tmp_path)
    first.metrics("rl", 1, {"reward/mean": 0.5})
    first.samples("rl", 1, [{"completion": "héllo\nworld"}])
    position = first.position
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


@pytest.mark.parametrize("text", ["\ud800", "a\udc00é", "\udfff\ud800\n"])
def test_half_of_a_surrogate_pair_is_kept(text, tmp_path):
    """It is in no file of UTF-8, but a text that a tokenizer or a server gives may hold it."""
    journal = Journal(tmp_path, MESSAGES)
    journal.samples("rl", 1, [{"completion": text, text: 1}])
    journal.message({"records": [text]}, b"body")
    journal.close()
    assert (tmp_path / "samples.jsonl").read_bytes().decode()
    assert read_lines(tmp_path / "samples.jsonl") == [{"phase": "rl", "step": 1, "completion": text, text: 1}]
    assert list(blocks(tmp_path / MESSAGES)) == [({"records": [text]}, b"body")]


def test_each_prompt_of_an_evaluation_is_kept(tmp_path):
    journal = Journal(tmp_path)
    journal.prompts("rl", 5, {"accuracy": np.array([1.0, 0.0]), "reward/a": np.array([0.25, np.nan])})
    journal.close()
    text = (tmp_path / "eval.jsonl").read_text()
    assert text == '{"phase": "rl", "step": 5, "accuracy": [1, 0], "reward/a": [0.25, null]}\n'


@pytest.mark.parametrize("left", [None, b"", b'{"phase": "rl", "step": 1, "reward/mean": 0.5}'])
def test_records_that_are_gone_are_not_made_up(tmp_path, left):
    first = Journal(tmp_path)
    first.metrics("rl", 1, {"reward/mean": 0.5})
    first.samples("rl", 1, [{"completion": "42"}])
    position = first.position
    first.samples("rl", 2, [{"completion": "43"}])
    first.close()
    file, samples = tmp_path / "metrics.jsonl", (tmp_path / "samples.jsonl").read_bytes()
    file.unlink() if left is None else file.write_bytes(left)
    second = Journal(tmp_path)
    with pytest.raises(RunError) as caught:
        second.rewind(position)
    second.close()
    assert str(caught.value) == (
        f"'{file}' has {len(left or b'')} bytes, and at the checkpoint that the run would go on from it had"
        f" {position['metrics.jsonl']}: records are gone, which no step writes again. Put them back, or train in another"
        " folder"
    )
    assert file.read_bytes() == (left or b"")
    assert (tmp_path / "samples.jsonl").read_bytes() == samples, "nothing is cut where the run does not go on"


def test_a_run_that_begins_again_begins_with_empty_records(tmp_path):
    first = Journal(tmp_path)
    first.metrics("sft", 1, {"sft/loss": 2.0})
    first.close()
    second = Journal(tmp_path)
    second.rewind({})
    second.close()
    assert (tmp_path / "metrics.jsonl").read_bytes() == b""


def test_records_that_are_removed_meanwhile_are_missed(tmp_path):
    journal = Journal(tmp_path)
    journal.metrics("rl", 1, {"reward/mean": 0.5})
    (tmp_path / "metrics.jsonl").unlink()
    with pytest.raises(RunError, match=r"metrics\.jsonl' was removed while the run wrote to it"):
        journal.sync()
    journal.close()


@pytest.mark.parametrize("name", ["metrics.jsonl", MESSAGES])
def test_a_full_disk_is_one_line(name, tmp_path):
    """Closing the file would write again what could not be written."""
    journal = Journal(tmp_path, MESSAGES)
    journal._files[name].close()
    journal._files[name] = open("/dev/full", "ab")  # noqa: SIM115
    with pytest.raises(RunError, match="'/dev/full' cannot be written: No space left on device; checkpoints are kept"):
        journal.metrics("rl", 1, {"reward/mean": 0.5}) if name != MESSAGES else journal.message({"batch": 0}, b"body")
    journal.close()
    assert all(file.closed for file in journal._files.values())
