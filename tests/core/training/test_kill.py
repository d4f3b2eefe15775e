"""kill -9 at random moments, then the same command again: not one bit differs from an undisturbed run."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import pytest
from tests.core.training.held import held_at
from tests.core.training.test_loop import assert_same_parameters
from tests.core.training.tiny import TINY
from tests.programs import shared

STEPS = 12
LONGER = (
    *TINY,
    f"sft.steps={STEPS}",
    f"train.steps={STEPS}",
    "run.checkpoint_every=3",
    "train.kl_coef=0.1",
    "roles.reference=ema",
    "train.epochs=2",
)
AHEAD = ("train.staleness=2", "train.correction=['tis_token']")
KILLS = 2
PATIENCE_SECONDS = 600
"""A start takes ten seconds of a core; beside a dozen other programs on two cores, one took more than 180 seconds."""


def command(folder: Path, more: Sequence[str]) -> list[str]:
    sets = [part for override in (*LONGER, *more) for part in ("--set", override)]
    return [sys.executable, "-m", "dovetail", "train", str(folder.parent / "empty.gin"), "--folder", str(folder), *sets]


def start(
    folder: Path, more: Sequence[str], variables: Mapping[str, str] = MappingProxyType({})
) -> subprocess.Popen[str]:
    environment = os.environ | shared(folder.parent / "xla") | {"JAX_PLATFORMS": "cpu", **variables}
    return subprocess.Popen(
        command(folder, more), env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def finish(folder: Path, more: Sequence[str]) -> None:
    process = start(folder, more)
    try:
        output, _ = process.communicate(timeout=PATIENCE_SECONDS)
    finally:
        process.kill()
    assert process.returncode == 0, output


def kill_after(folder: Path, more: Sequence[str], records: int, more_seconds: float) -> None:
    """Kill a run once it has written `records` lines of metrics and a little later, after its last step at most."""
    process = start(folder, more, held_at(STEPS))
    metrics = folder / "metrics.jsonl"
    deadline = time.monotonic() + PATIENCE_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        if metrics.exists() and metrics.read_bytes().count(b"\n") >= records:
            break
        time.sleep(0.005)
    time.sleep(more_seconds)
    alive = process.poll() is None
    process.send_signal(signal.SIGKILL)
    said, _ = process.communicate()
    assert alive, said


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [
        pytest.param((), id="in turn"),
        # tests/campaign/test_kill.py kills a run that samples ahead
        pytest.param(AHEAD, marks=pytest.mark.exhaustive, id="ahead"),
    ],
)
def test_a_killed_run_goes_on_bit_for_bit(tmp_path, more):
    (tmp_path / "empty.gin").write_text("")
    undisturbed, killed = tmp_path / "undisturbed", tmp_path / "killed"
    finish(undisturbed, more)
    total = (undisturbed / "metrics.jsonl").read_bytes().count(b"\n")
    chance = random.Random(7)
    points = sorted(chance.sample(range(1, total - 1), KILLS))
    for records in points:
        kill_after(killed, more, records, chance.uniform(0, 0.3))
    finish(killed, more)
    for name in ("metrics.jsonl", "samples.jsonl", "eval.jsonl"):
        assert (killed / name).read_bytes() == (undisturbed / name).read_bytes()
    assert_same_parameters(killed, undisturbed)
