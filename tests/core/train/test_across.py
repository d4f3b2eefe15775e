"""One run in several processes: what they compute, and how they end."""

import json
import signal
import time

import pytest
from tests.core.train.several import PATIENCE_SECONDS, assert_same_state, ended, start, start_several
from tests.core.train.tiny import TINY

from dovetail.config import load
from dovetail.train.loop import train

LEAST = ("sft.steps=0", "train.steps=1", "eval.every=None", "run.checkpoint_every=1", "model.decoder.width=8")
KILLED = (*TINY, "mesh.fsdp=2", "train.steps=8", "train.kl_coef=0.1", "roles.reference=ema", "train.epochs=2")
AHEAD = ("train.staleness=2", "train.correction=['tis_token']")


def records(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def trained(record):
    """What a record says but for the comparison with the sampler, whose matrices have other shapes on other meshes."""
    return {name: value for name, value in record.items() if not name.startswith("mismatch/")}


def test_two_processes_train_what_one_does(tmp_path):
    processes = start_several(tmp_path / "two", 2, (*TINY, *LEAST, "mesh.fsdp=2"))
    train(load(None, [*TINY, *LEAST]), tmp_path / "one")
    found = ended(processes)
    assert [status for status, _ in found] == [0, 0], found
    (one,), (two,) = records(tmp_path / "one"), records(tmp_path / "two")
    assert trained(two) == pytest.approx(trained(one), rel=1e-3)
    assert (tmp_path / "two" / "samples.jsonl").read_bytes() == (tmp_path / "one" / "samples.jsonl").read_bytes()


@pytest.mark.slow
def test_two_processes_compute_the_bits_of_one_with_two_devices(tmp_path):
    one = start(tmp_path / "one", [], (*TINY, "mesh.fsdp=2"), devices=2)
    found = ended([*start_several(tmp_path / "two", 2, (*TINY, "mesh.fsdp=2")), one])
    assert [status for status, _ in found] == [0, 0, 0], found
    one, two = records(tmp_path / "one"), records(tmp_path / "two")
    assert [trained(record) for record in two] == [trained(record) for record in one]
    assert any("mismatch/abs_max" in record for record in two)
    assert all(record.get("mismatch/abs_max", 0.0) < 1e-5 for record in two)
    assert_same_state(tmp_path / "two", tmp_path / "one")
    for name in ("parameters.txt", "samples.jsonl", "memory.json", "config.gin"):
        assert (tmp_path / "two" / name).read_bytes() == (tmp_path / "one" / name).read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), AHEAD], ids=["in turn", "ahead"])
@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_process_ends_all_and_the_same_command_goes_on_bit_for_bit(tmp_path, victim, more):
    undisturbed, killed = tmp_path / "undisturbed", tmp_path / "killed"
    assert [status for status, _ in ended(start_several(undisturbed, 2, (*KILLED, *more)))] == [0, 0]
    processes = start_several(killed, 2, (*KILLED, *more), more=("--deadline", "8"))
    metrics, deadline = killed / "metrics.jsonl", time.monotonic() + PATIENCE_SECONDS
    while not (metrics.exists() and metrics.read_bytes().count(b"\n") >= 10) and time.monotonic() < deadline:
        assert [process.poll() for process in processes] == [None, None]
        time.sleep(0.01)
    processes[victim].send_signal(signal.SIGKILL)
    found = ended(processes)
    survivor, said = found[1 - victim]
    assert survivor != 0
    (line,) = said.splitlines()
    assert line.startswith(f"error: process {victim} on ")
    assert "has died" in line
    found = ended(start_several(killed, 2, (*KILLED, *more)))
    assert [status for status, _ in found] == [0, 0], found
    for name in ("metrics.jsonl", "samples.jsonl", "eval.jsonl"):
        assert (killed / name).read_bytes() == (undisturbed / name).read_bytes()
    assert_same_state(killed, undisturbed)
