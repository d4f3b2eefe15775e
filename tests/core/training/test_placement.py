"""Roles on devices of their own: the same metrics as together, and a killed run that goes on bit for bit."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
from tests.core.training.held import held_at
from tests.core.training.test_loop import assert_same_parameters
from tests.core.training.tiny import TINY
from tests.devices import EIGHT
from tests.programs import shared

ROOT = Path(__file__).parents[3]
ALL = (
    *TINY,
    "model.decoder.kv_heads=2",
    "sft.steps=1",
    "train.steps=4",
    "train.epochs=2",
    "train.kl_coef=0.1",
    "train.advantage=gae",
    "roles.reference=ema",
    "roles.judge=frozen",
    "train.loss_terms=['reads_judge']",
    "eval.every=4",
    "run.checkpoint_every=2",
)
"""A policy, a critic, a reference that follows, and a role that is not one of ours."""
FEW = (
    "train.advantage=grpo",
    "roles.reference=frozen",
    "train.loss_terms=[]",
    "train.epochs=1",
    "train.steps=2",
    "sft.steps=0",
    "eval.every=None",
)
APART = (
    "rollout/mesh.first=2",
    "reference/mesh.first=3",
    "critic/mesh.first=4",
    "judge/mesh.first=5",
)
ACROSS = (
    "mesh.fsdp=2",
    "mesh.tp=2",
    "rollout/mesh.fsdp=4",
    "rollout/mesh.tp=1",
    "rollout/mesh.first=2",
    "reference/mesh.fsdp=1",
    "reference/mesh.cp=2",
    "reference/mesh.first=4",
    "critic/mesh.tp=1",
    "critic/mesh.first=3",
    "judge/mesh.first=1",
)
"""Overlapping, and each cut in another way."""
AHEAD = (
    "train.staleness=2",
    "train.correction=['tis_token']",
    "mesh.fsdp=2",
    "rollout/mesh.first=4",
    "reference/mesh.first=2",
)
PATIENCE_SECONDS = 600


def start(
    *folders: Path, runs: list[tuple[str, ...]], variables: Mapping[str, str] = MappingProxyType({})
) -> subprocess.Popen[str]:
    """Train in a process with eight devices, one run after the other; programs are compiled once for all processes."""
    cache = shared(folders[0].parent / "xla")  # some of these processes are killed
    command = [sys.executable, "-m", "tests.core.training.placed"]
    given = json.dumps([[str(folder), [*ALL, *overrides]] for folder, overrides in zip(folders, runs, strict=True)])
    return subprocess.Popen(
        [*command, given],
        env=EIGHT | cache | variables,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(*folders: Path, runs: list[tuple[str, ...]]) -> None:
    process = start(*folders, runs=runs)
    output, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, output


def metrics(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def assert_alike(folder: Path, other: Path) -> None:
    for line, expected in zip(metrics(folder), metrics(other), strict=True):
        assert line.keys() == expected.keys()
        for name in line.keys() - {"phase"}:
            np.testing.assert_allclose(line[name], expected[name], rtol=2e-3, atol=2e-4, err_msg=name)


@pytest.mark.slow
def test_a_sampler_and_a_reference_apart_compute_what_they_compute_together(tmp_path: Path) -> None:
    """Each on one device computes the same programs, so that not a bit differs; what moved is timed."""
    together, apart = tmp_path / "together", tmp_path / "apart"
    finish(together, apart, runs=[FEW, (*FEW, *APART[:2])])
    assert (apart / "metrics.jsonl").read_bytes() == (together / "metrics.jsonl").read_bytes()
    assert_same_parameters(apart, together)
    timings = [json.loads(line) for line in (apart / "timings.jsonl").read_text().splitlines()]
    moved = [line for line in timings if "hand_over/seconds" in line]
    assert [line["step"] for line in moved] == [1, 2]
    assert all(line["hand_over/gb_per_second"] > 0 for line in moved)
    assert "hand_over/seconds" not in (together / "timings.jsonl").read_text()


@pytest.mark.slow
def test_all_roles_apart_or_across_compute_what_they_compute_together(tmp_path: Path) -> None:
    together, apart, across = (tmp_path / name for name in ("together", "apart", "across"))
    finish(together, apart, across, runs=[(), APART, ACROSS])
    assert (apart / "metrics.jsonl").read_bytes() == (together / "metrics.jsonl").read_bytes()
    assert_same_parameters(apart, together)
    assert_alike(across, together)


@pytest.mark.slow
@pytest.mark.parametrize(
    "placement",
    # "across" has the critic and the judge elsewhere as well, and "ahead" a sampler and a reference on devices of their own
    [
        pytest.param(APART, marks=pytest.mark.exhaustive, id="apart"),
        pytest.param(ACROSS, id="across"),
        pytest.param(AHEAD, id="ahead"),
    ],
)
def test_a_killed_run_goes_on_bit_for_bit_in_its_placement(tmp_path: Path, placement: tuple[str, ...]) -> None:
    undisturbed, killed, chance = tmp_path / "undisturbed", tmp_path / "killed", random.Random(len(placement))
    more = (*placement, "train.steps=8")
    finish(undisturbed, runs=[more])
    process = start(killed, runs=[more], variables=held_at(8))
    deadline = time.monotonic() + PATIENCE_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        file = killed / "metrics.jsonl"
        if file.exists() and file.read_bytes().count(b"\n") >= 5:
            break
        time.sleep(0.005)
    time.sleep(chance.uniform(0, 0.1))
    alive = process.poll() is None
    process.send_signal(signal.SIGKILL)
    said, _ = process.communicate()
    assert alive, said
    assert len(metrics(killed)) < len(metrics(undisturbed))
    finish(killed, runs=[more])
    for name in ("metrics.jsonl", "samples.jsonl", "eval.jsonl"):
        assert (killed / name).read_bytes() == (undisturbed / name).read_bytes()
    assert_same_parameters(killed, undisturbed)
