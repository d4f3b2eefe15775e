"""A run that keeps its samples, and a second run trained from them."""

import pytest
from tests.core.training.test_loop import assert_same_parameters
from tests.core.training.tiny import TINY

from dovetail.cli import main
from dovetail.config import load
from dovetail.errors import RunError
from dovetail.run.blocks import block, blocks
from dovetail.run.journal import MESSAGES
from dovetail.training.loop import train
from dovetail_lab.kept import kept_by
from dovetail_rollout.rollout.vanilla import Vanilla

CONFIG = (
    *TINY,
    "sft.steps=1",
    "train.steps=4",
    "eval.samples=2",
    "train.staleness=1",
    "train.correction=['tis_token']",
)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "source"
    train(load(None, [*CONFIG, "run.keep_messages=True"]), folder)
    return folder


def no_engine(*_):
    raise AssertionError("an engine was asked for")


@pytest.mark.slow
def test_a_run_is_trained_again_without_an_engine_byte_for_byte(source, tmp_path, monkeypatch, capsys):
    for name in ("check", "open"):
        monkeypatch.setattr(Vanilla, name, no_engine)
    again = tmp_path / "again"
    assert main(["replay", str(source), "--folder", str(again)]) == 0
    assert "the same, byte for byte" in capsys.readouterr().out
    for name in ("metrics.jsonl", "samples.jsonl", "eval.jsonl"):
        assert (again / name).read_bytes() == (source / name).read_bytes()
    assert_same_parameters(again, source)


def torn(content: bytes) -> bytes:
    return content[: len(content) * 3 // 4]


def changed(content: bytes) -> bytes:
    return content[:-9] + bytes([content[-9] ^ 1]) + content[-8:]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "last", "damage", "message"),
    [
        (0, 0, bytes, r"has kept no messages .*run.keep_messages = True"),
        (0, 7, torn, r"block \d is not whole"),
        (0, 7, changed, "block 7 is not whole"),
        (0, 2, bytes, "ends before the batch of step 2, and the run in that folder with it"),
        (1, 7, bytes, "has the batch of step 1 where the evaluation of weights 0 should be"),
    ],
    ids=["none", "torn", "changed", "stopped", "begun late"],
)
def test_messages_that_are_not_all_there_are_refused(source, tmp_path, first, last, damage, message):
    copy = tmp_path / "copy"
    copy.mkdir()
    some = b"".join(block(*each) for each in list(blocks(source / MESSAGES))[first:last])
    (copy / MESSAGES).write_bytes(damage(some))
    with pytest.raises(RunError, match=message):
        train(load(source / "config.gin", ["run.keep_messages=False"]), tmp_path / "again", opening=kept_by(copy))


def test_a_folder_without_a_run_is_refused(tmp_path, capsys):
    assert main(["replay", str(tmp_path)]) == 1
    assert "is not the folder of a run: it has no config.gin" in capsys.readouterr().err
