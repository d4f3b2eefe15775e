import struct

import pytest
from tensorboardX.proto import event_pb2

from dovetail_sink.sink.tensorboard import TensorBoard


def events(folder):
    """The events of a folder's files, oldest file first."""
    found = []
    for file in sorted(folder.glob("events.out.tfevents.*"), key=lambda file: file.stat().st_ino):
        content, position = file.read_bytes(), 0
        while position < len(content):
            (length,) = struct.unpack_from("<Q", content, position)
            found.append(event_pb2.Event.FromString(content[position + 12 : position + 12 + length]))
            position += 12 + length + 4  # length, its checksum, the event, its checksum
    return found


def scalars(folder):
    return [(e.step, v.tag, v.simple_value) for e in events(folder) for v in e.summary.value]


def test_every_metric_is_written_with_its_step(tmp_path):
    sink = TensorBoard().open(tmp_path, 10, 0)
    sink.write(0, {"eval/accuracy": 0.5})
    sink.write(1, {"reward/mean": 1.5, "kl/mean": 0.25})
    sink.close()
    assert scalars(tmp_path / "events") == [(0, "eval/accuracy", 0.5), (1, "reward/mean", 1.5), (1, "kl/mean", 0.25)]


def test_the_warm_start_has_a_folder_of_its_own(tmp_path):
    sink = TensorBoard().open(tmp_path, 10, 0)
    sink.write(5, {"sft/loss": 2.0, "time/step": 1.0})
    sink.write(1, {"reward/mean": 1.5})
    sink.close()
    assert scalars(tmp_path / "events" / "sft") == [(5, "sft/loss", 2.0), (5, "time/step", 1.0)]
    assert scalars(tmp_path / "events") == [(1, "reward/mean", 1.5)]


def test_a_resume_purges_from_the_first_step_that_is_written_again(tmp_path):
    for steps in ((1, 2, 3, 4), (3, 4)):
        sink = TensorBoard().open(tmp_path, 10, steps[0] - 1)
        for step in steps:
            sink.write(step, {"reward/mean": float(step)})
        sink.close()
    starts = [e.step for e in events(tmp_path / "events") if e.session_log.status == event_pb2.SessionLog.START]
    assert starts == [3]


def test_a_resume_into_the_warm_start_leaves_the_other_folder_alone(tmp_path):
    for _ in range(2):
        sink = TensorBoard().open(tmp_path, 10, 0)
        sink.write(5, {"sft/loss": 2.0})
        sink.close()
    assert not events(tmp_path / "events")
    assert [e.step for e in events(tmp_path / "events" / "sft") if e.HasField("session_log")] == [5]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_figures_that_are_not_finite_are_kept(tmp_path, value):
    sink = TensorBoard().open(tmp_path, 10, 0)
    sink.write(1, {"reward/mean": value})
    sink.close()
    sink.close()
    assert len(scalars(tmp_path / "events")) == 1
