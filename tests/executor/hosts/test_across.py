"""One run in several processes: what they compute, and how they end."""

import json
import shutil
import signal
import time

import pytest
from tests.core.training.held import held_at
from tests.core.training.several import PATIENCE_SECONDS, assert_same_state, ended, free_port, start, start_several
from tests.core.training.tiny import TINY
from tests.rollout.fake_vllm import FakeVllm
from tests.rollout.hosted_case import Drawer
from tests.tiny_folder import write

from dovetail.config import load
from dovetail.training.loop import train
from dovetail_lab.evaluation.policy import open_policy

LEAST = ("sft.steps=0", "train.steps=1", "eval.every=None", "run.checkpoint_every=1", "model.decoder.width=8")
KILLED = (*TINY, "mesh.fsdp=2", "train.steps=8", "train.kl_coef=0.1", "roles.reference=ema", "train.epochs=2")


def records(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def trained(record):
    """What a record says but for the comparison with the sampler, whose matrices have other shapes on other meshes."""
    return {name: value for name, value in record.items() if not name.startswith(("mismatch/", "phase"))}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """A folder, which is read alone, of two processes that nothing has disturbed."""
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    assert [status for status, _ in ended(start_several(folder, 2, KILLED))] == [0, 0]
    return folder


def ended_by_killing(processes, victim, metrics, lines):
    """Kill one of two processes once so many lines are written; return how each ended."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (metrics.exists() and metrics.read_bytes().count(b"\n") >= lines) and time.monotonic() < deadline:
        assert [process.poll() for process in processes] == [None, None]
        time.sleep(0.01)
    processes[victim].send_signal(signal.SIGKILL)
    return ended(processes)


@pytest.mark.slow
@pytest.mark.exhaustive  # two processes compute the bits of one with two devices (below), and that what one does (test_mesh)
def test_two_processes_train_what_one_does(tmp_path):
    processes = start_several(tmp_path / "two", 2, (*TINY, *LEAST, "mesh.fsdp=2"))
    train(load(None, [*TINY, *LEAST]), tmp_path / "one")
    found = ended(processes)
    assert [status for status, _ in found] == [0, 0], found
    (one,), (two,) = records(tmp_path / "one"), records(tmp_path / "two")
    assert trained(two) == pytest.approx(trained(one), rel=1e-3, abs=1e-6)


@pytest.mark.slow
def test_the_tasks_of_a_slurm_step_find_each_other(tmp_path):
    step = {
        "SLURM_JOB_ID": "4711",
        "SLURM_STEP_NODELIST": "localhost",
        "SLURM_STEP_NUM_NODES": "1",
        "SLURM_NTASKS": "2",
        "JAX_COORDINATOR_PORT": str(free_port()),
    }
    tasks = [{"SLURM_PROCID": index, "SLURM_LOCALID": index} for index in ("0", "1")]
    sets, auto = (*TINY, *LEAST, "mesh.fsdp=2"), ("--coordinator", "auto")
    found = ended([start(tmp_path / "run", auto, sets, variables=step | task) for task in tasks])
    assert [status for status, _ in found] == [0, 0], found
    (record,) = records(tmp_path / "run")
    assert record["step"] == 1


@pytest.mark.slow
def test_several_processes_do_not_sample_ahead_with_an_engine_among_them(tmp_path):
    ahead = (*TINY, "mesh.fsdp=2", "train.staleness=1", "train.correction=('tis_token',)")
    for apart, said in (
        ((), "can, take an engine that computes outside of this process, or set train.staleness = 0"),
        (("rollout/mesh.first=2",), "which a run of 2 processes does not support: all roles share mesh.* there"),
    ):
        found = ended(start_several(tmp_path / "run", 2, (*ahead, *apart), devices=2))
        assert [status for status, _ in found] == [1, 1]
        for _, error in found:
            (line,) = error.strip().splitlines()
            assert line.startswith("error: ")
            assert line.endswith(said)


@pytest.mark.slow
def test_replicas_of_process_0_sample_for_all_processes_and_evaluate(tmp_path, undisturbed):
    found = ended(start_several(tmp_path / "fleet", 2, (*KILLED, "rollout.vanilla.replicas=2")))
    assert [status for status, _ in found] == [0, 0], found
    fleet, alone = records(tmp_path / "fleet"), records(undisturbed)
    assert [trained(record) for record in fleet] == [trained(record) for record in alone]
    assert sum("eval/accuracy" in record for record in fleet) == 5


@pytest.mark.slow
def test_a_server_of_process_0_is_probed_and_samples_from_what_all_processes_train(tmp_path):
    drawer = Drawer()
    with FakeVllm(draw=drawer.draw, load=drawer.load) as server:
        sets = (*TINY, "sft.steps=0", "train.steps=2", "train.rollout=vllm", f"rollout.vllm.url={server.url!r}")
        found = ended(start_several(tmp_path / "two", 2, (*sets, "mesh.fsdp=2")))
        found += ended([start(tmp_path / "one", [], sets)])
    assert [status for status, _ in found] == [0] * 3, found
    two, one = records(tmp_path / "two"), records(tmp_path / "one")
    assert [trained(record) for record in two] == [pytest.approx(trained(record), rel=1e-3, abs=1e-6) for record in one]
    apart = [record["mismatch/abs_max"] for record in two if "mismatch/abs_max" in record]
    assert len(apart) == 2
    assert max(apart) < 1e-4, "it has the weights of both steps"


@pytest.mark.slow
def test_a_server_samples_ahead_of_two_processes_which_go_on_bit_for_bit(tmp_path):
    drawer, one, killed = Drawer(), tmp_path / "one", tmp_path / "killed"
    with FakeVllm(draw=drawer.draw, load=drawer.load) as server:
        ahead = ("train.staleness=2", "train.correction=('tis_token',)", "train.steps=6", "run.checkpoint_every=1")
        sets = (*TINY, *ahead, "sft.steps=0", "train.rollout=vllm", f"rollout.vllm.url={server.url!r}", "mesh.fsdp=2")
        found = ended([start(one, [], sets, devices=2)])
        processes = start_several(killed, 2, sets, more=("--deadline", "30"), variables=held_at(6))
        ended_by_killing(processes, 0, killed / "metrics.jsonl", lines=4)
        found += ended(start_several(killed, 2, sets))
    assert [status for status, _ in found] == [0] * 3, found
    assert [trained(record) for record in records(killed)] == [trained(record) for record in records(one)]
    assert [record["staleness/max"] for record in records(killed) if "staleness/max" in record] == [0, 1, 2, 2, 2, 2]
    assert_same_state(killed, one)


@pytest.mark.slow
def test_two_processes_compute_the_bits_of_one_with_two_devices(tmp_path, undisturbed):
    found = ended([start(tmp_path / "one", [], KILLED, devices=2)])
    assert [status for status, _ in found] == [0], found
    one, two = records(tmp_path / "one"), records(undisturbed)
    assert [trained(record) for record in two] == [trained(record) for record in one]
    assert any("mismatch/abs_max" in record for record in two)
    assert all(record.get("mismatch/abs_max", 0.0) < 1e-5 for record in two)
    assert_same_state(undisturbed, tmp_path / "one")
    for name in ("parameters.txt", "samples.jsonl", "memory.json", "config.gin"):
        assert (undisturbed / name).read_bytes() == (tmp_path / "one" / name).read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_a_killed_process_ends_all_and_the_same_command_goes_on_bit_for_bit(tmp_path, victim, undisturbed):
    killed = tmp_path / "killed"
    processes = start_several(killed, 2, KILLED, more=("--deadline", "30"), variables=held_at(8))
    found = ended_by_killing(processes, victim, killed / "metrics.jsonl", lines=10)
    survivor, said = found[1 - victim]
    assert survivor != 0
    (line,) = said.splitlines()
    assert line.startswith(f"error: process {victim} on ")
    assert "has died" in line
    found = ended(start_several(killed, 2, KILLED))
    assert [status for status, _ in found] == [0, 0], found
    for name in ("metrics.jsonl", "samples.jsonl", "eval.jsonl"):
        assert (killed / name).read_bytes() == (undisturbed / name).read_bytes()
    assert_same_state(killed, undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize(
    "later",
    [{"processes": 1, "devices": 2}, pytest.param({"processes": 4, "devices": 1}, marks=pytest.mark.exhaustive)],
)
def test_a_run_goes_on_with_another_number_of_processes_and_another_mesh(tmp_path, later, undisturbed):
    shutil.copytree(undisturbed, tmp_path / "run")
    steps = tmp_path / "run" / "checkpoints" / "steps"
    newest = max(int(step.name) for step in steps.iterdir())
    shutil.rmtree(steps / str(newest))
    count, devices = later["processes"], later["devices"]
    mesh = ("mesh.tp=2", f"mesh.fsdp={count * devices // 2}")
    if count == 1:
        found = ended([start(tmp_path / "run", [], (*KILLED, *mesh), devices=devices)])
    else:
        found = ended(start_several(tmp_path / "run", count, (*KILLED, *mesh), devices=devices))
    assert [status for status, _ in found] == [0] * count, found
    one, two = records(undisturbed), records(tmp_path / "run")
    assert len(one) == len(two)
    assert [trained(record) for record in two] == [pytest.approx(trained(record), rel=1e-3, abs=1e-6) for record in one]


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.exhaustive)])
def test_processes_with_two_devices_each_train_a_qwen_folder(tmp_path, count):
    write(tmp_path / "tiny")
    path = str(tmp_path / "tiny")
    qwen = (
        "train.model=pretrained",
        f"model.pretrained.path={path!r}",
        "train.tokenizer=huggingface",
        f"tokenizer.huggingface.path={path!r}",
        "task.arithmetic.chat=True",
        "train.max_prompt_tokens=64",
        "sft.steps=0",
        "train.steps=2",
        "eval.every=None",
        "train.advantage=gae",
        "critic.model=pretrained",
        "train.kl_coef=0.1",
        f"mesh.fsdp={count}",
        "mesh.tp=2",
    )
    folder = tmp_path / "run"
    found = ended(start_several(folder, count, (*TINY, *qwen), devices=2))
    assert [status for status, _ in found] == [0] * count, found
    one = ended([start(tmp_path / "one", [], (*TINY, *qwen), devices=2 * count)])
    assert [status for status, _ in one] == [0], one
    pairs = zip(records(folder), records(tmp_path / "one"), strict=True)
    for several, alone in pairs:
        assert trained(several) == pytest.approx(trained(alone), rel=1e-3, abs=1e-6)
    policy = open_policy(load(folder / "config.gin", ["mesh.fsdp=1", "mesh.tp=1"]), folder)
    policy.export(tmp_path / "out", adapter=False)
    assert (tmp_path / "out" / "model.safetensors").exists()
