"""Disks that are really full: a small file system is mounted where something is written."""

import os
import shlex
import subprocess
import sys

import pytest
from tests.core.training.tiny import TINY
from tests.programs import shared

PROGRAM = [sys.executable, "-m", "dovetail"]
SECONDS = 300
SETS = shlex.join(part for override in (*TINY, "sft.steps=0") for part in ("--set", override))
ALL = "--set run.checkpoint_every=1 --set train.steps=30 --set \"run.sinks=('console', 'tensorboard')\""

CASES = {
    # the size of the disk, the command, and what is named as the thing that cannot be written
    "the tokenizer": ("24k", f"train a.gin --folder disk/r {ALL}", "disk/r/tokenizer.tmp"),
    "the first checkpoint": ("120k", f"train a.gin --folder disk/r {ALL}", "disk/r/checkpoints"),
    "a later checkpoint": ("500k", f"train a.gin --folder disk/r {ALL}", "disk/r/checkpoints"),
    "an evaluation": ("4k", "eval a.gin --run r --out disk/e", "disk/e"),
    "an export": ("20k", "export r --out disk/x", "disk/x"),
    "generated completions": ("4k", "generate a.gin --run r --out disk/g.jsonl", "disk/g.jsonl"),
}
pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a file system")]


def dovetail(command, folder):
    environment = {"PATH": os.environ["PATH"], "JAX_PLATFORMS": "cpu", "XLA_FLAGS": os.environ.get("XLA_FLAGS", "")}
    environment |= shared()
    return subprocess.run(
        [*PROGRAM, *shlex.split(command)], env=environment, cwd=folder, capture_output=True, text=True,
        timeout=SECONDS, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with a config and a run of it."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "a.gin").write_text("")
    done = dovetail(f"train a.gin --folder r {SETS} --set train.steps=1", folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def disk(tmp_path):
    """A function that mounts a disk of some size in the test's folder."""
    mounted = []

    def mount(size):
        place = tmp_path / "disk"
        place.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", place], check=False).returncode:
            pytest.skip("this container mounts no file systems")
        mounted.append(place)
        return place

    yield mount
    for place in mounted:
        subprocess.run(["umount", "-l", place], check=True)


@pytest.mark.parametrize(("size", "command", "named"), CASES.values(), ids=CASES)
def test_a_full_disk(size, command, named, disk, tmp_path, request):
    """One line says what could not be written and why; nothing else is printed, and what was saved stays."""
    place = disk(size)
    (tmp_path / "a.gin").write_text("")
    if "r" in command.split():
        (tmp_path / "r").symlink_to(request.getfixturevalue("trained") / "r")
    done = dovetail(command.replace("a.gin", f"a.gin {SETS}"), tmp_path)
    assert done.returncode == 1, done.stderr
    errors = [line for line in done.stderr.splitlines() if not line.startswith("[") and " error" in f" {line}".lower()]
    assert len(errors) == 1, done.stderr
    assert errors[0].startswith("error: ")
    assert f"{named}' cannot be written: No space left on device" in errors[0] or (
        f"cannot be written in '{tmp_path}/{named}': No space left on device; the earlier ones are kept" in errors[0]
    )
    assert "Traceback" not in done.stderr
    if size == "500k":
        assert (place / "r" / "checkpoints" / "steps" / "1").exists()


def test_the_output_of_a_plan_of_a_sweep(tmp_path):
    (tmp_path / "a.gin").write_text("")
    command = shlex.join([*PROGRAM, *shlex.split(f"sweep run a.gin --seeds 2 --dry-run {SETS}")])
    done = subprocess.run(
        ["bash", "-c", f"{command} >/dev/full"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == "error: the output cannot be written: No space left on device\n"
