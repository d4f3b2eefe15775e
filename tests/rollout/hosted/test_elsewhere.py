"""A trainer on several devices that samples ahead with an engine outside of its process."""

import signal
import time

import pytest
from tests.core.training.held import held_at
from tests.core.training.several import PATIENCE_SECONDS, assert_same_state, ended, start
from tests.core.training.tiny import TINY
from tests.rollout.fake_vllm import FakeVllm
from tests.rollout.hosted_case import Drawer

from dovetail.run.files import read_lines
from dovetail.run.summary import series

CORRECTED = (*TINY, "sft.steps=0", "train.correction=('tis_token',)", "run.checkpoint_every=1")
STEPS = 6


@pytest.fixture
def served():
    """The settings of a run whose completions a server draws from the weights that it is given."""
    drawer = Drawer()
    with FakeVllm(draw=drawer.draw, load=drawer.load) as server:
        yield (*CORRECTED, f"train.steps={STEPS}", "train.rollout=vllm", f"rollout.vllm.url={server.url!r}")


def finish(folder, sets, devices):
    """Train in a process with so many devices."""
    shards = () if devices == 1 else (f"mesh.fsdp={devices}",)
    (found,) = ended([start(folder, [], (*sets, *shards), devices)])
    assert found[0] == 0, found


def assert_alike(folder, other):
    """Compare the metrics of two runs up to rounding."""
    pairs = zip(read_lines(folder / "metrics.jsonl"), read_lines(other / "metrics.jsonl"), strict=True)
    for one, two in pairs:
        names = one.keys() - {"phase"}
        expected = pytest.approx({name: two[name] for name in names}, rel=2e-3, abs=2e-5)
        assert {name: one[name] for name in names} == expected


def assert_same_bytes(folder, other):
    for name in ("metrics.jsonl", "samples.jsonl", "eval.jsonl"):
        assert (folder / name).read_bytes() == (other / name).read_bytes(), name
    assert_same_state(folder, other)


@pytest.mark.slow
def test_a_server_samples_ahead_of_two_devices_and_a_killed_run_goes_on_bit_for_bit(served, tmp_path):
    sets, two, killed = (*served, "train.staleness=2"), tmp_path / "two", tmp_path / "killed"
    finish(two, sets, 2)
    assert [age for _, age in series(two, "staleness/max")] == [min(n, 2) for n in range(STEPS)]
    apart = dict(series(two, "mismatch/abs_max"))
    assert apart[1] < 1e-4, "batch 0 has the weights that it is trained with"
    assert min(apart[n] for n in range(2, STEPS + 1)) > 1e-3, "the others have older ones"
    finish(tmp_path / "one", sets, 1)
    assert_alike(two, tmp_path / "one")

    process, metrics = start(killed, [], (*sets, "mesh.fsdp=2"), 2, held_at(STEPS)), killed / "metrics.jsonl"
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (metrics.exists() and metrics.read_bytes().count(b"\n") >= 4) and time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    finish(killed, sets, 2)
    assert_same_bytes(killed, two)


@pytest.mark.slow
def test_replicas_sample_ahead_of_two_devices_with_the_same_bytes_in_each_run(tmp_path):
    sets = (*CORRECTED, "train.staleness=1", "rollout.vanilla.replicas=2", "train.group_filter=nonzero_variance")
    for name, devices in (("two", 2), ("again", 2), ("one", 1)):
        finish(tmp_path / name, sets, devices)
    assert_same_bytes(tmp_path / "again", tmp_path / "two")
    assert_alike(tmp_path / "one", tmp_path / "two")


@pytest.mark.slow
def test_an_adapter_is_merged_into_its_base_in_host_memory(served, tmp_path):
    sets = (*served, "train.staleness=1", "train.adapter=lora", "adapter.lora.rank=2", "eval.every=None")
    for devices in (1, 2):
        finish(tmp_path / str(devices), sets, devices)
    assert_alike(tmp_path / "1", tmp_path / "2")
    apart = [value for _, value in series(tmp_path / "2", "mismatch/abs_max")]
    assert apart[0] < 1e-4
    assert min(apart[1:]) > 1e-3, "the base with the adapter of one step before"
