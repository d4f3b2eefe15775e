"""A whole run on a cluster of `ray start`: the trainer on a machine, its replicas, rewards and tools on another."""

import json
import secrets
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from tests.core.training.several import free_port

from dovetail.run.files import read_lines

RAY = str(Path(sys.executable).with_name("ray"))
RAY_TRAIN = str(Path(__file__).parents[1] / "configs" / "cluster" / "ray_train.py")
SMALL = (
    *("model.decoder.width=32", "sft.steps=20", "train.steps=3", "train.prompts=4", "train.group_size=4"),
    *("eval.examples=8", "eval.batch_size=8", "eval.every=2", "eval.samples=1", "run.sinks=()"),
)
ELSEWHERE = (
    *("rollout.vanilla.replicas=2", "rollout.vanilla.launcher='ray'", "launcher.ray.address='{address}'"),
    *("launcher.ray.cpus=0", "launcher.ray.resources={{'engine': 1}}"),
    *("reward.exact_match.pool='ray'", "agent_loop.tool_agent.pool='ray'", "pool.ray.address='{address}'"),
    *("pool.ray.workers=2", "pool.ray.cpus=0", "pool.ray.resources={{'worker': 1}}"),
)


@contextmanager
def machine(*options):
    """A machine of the cluster, as long as this lasts."""
    command = [RAY, "start", "--block", "--disable-usage-stats", "--object-store-memory=100000000", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=240)


def trained(folder, *settings, program=("-m", "dovetail", "train")):
    sets = [f"--set={each}" for each in (*SMALL, *settings)]
    command = [sys.executable, *program, "calculation", "--folder", str(folder), *sets]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    lines = read_lines(folder / "metrics.jsonl")
    # replicas compute fewer rows at a time, so the log-probabilities of what they draw are rounded otherwise
    return [{name: value for name, value in line.items() if not name.startswith("mismatch/")} for line in lines]


@pytest.mark.slow
def test_a_run_uses_the_machines_of_a_cluster_and_computes_what_it_does_alone(tmp_path, monkeypatch):
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
    port = free_port()
    address = f"127.0.0.1:{port}"
    there = ["--address", address, "--num-cpus=0", "--resources", json.dumps({"engine": 2, "worker": 4})]
    elsewhere = [each.format(address=address) for each in ELSEWHERE]
    with ExitStack() as machines:
        head = ["--head", f"--port={port}", "--num-cpus=1", "--include-dashboard=false"]
        machines.enter_context(machine(*head))
        machines.enter_context(machine(*there))
        # nothing but the second machine has these resources, and a run does not wait for what is not there
        from_outside = trained(tmp_path / "outside", *elsewhere)
        monkeypatch.setenv("RAY_ADDRESS", address)
        # and nothing but the first has a CPU, where Ray starts the trainer
        within = trained(tmp_path / "within", *elsewhere, program=(RAY_TRAIN, "--processes=1"))
    alone = trained(tmp_path / "alone")
    assert from_outside == alone
    assert within == alone
