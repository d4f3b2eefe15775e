"""A device without memory is one line that says where to look, not an unforeseen error."""

import subprocess
import sys
from pathlib import Path

import jax

from dovetail.cli.exhausted import CODE, out_of_memory
from dovetail.errors import RunError

COMMAND = """\
import resource, sys
import jax, jax.numpy as jnp

from dovetail.cli import main

resource.setrlimit(resource.RLIMIT_AS, (12 << 30, 12 << 30))

def run(options):
    return jax.jit(lambda: jnp.zeros((1 << 33, 64)))().block_until_ready()

import dovetail.cli.train
dovetail.cli.train.train_command = run
sys.exit(main(["train", "quickstart"]))
"""


def test_an_array_that_is_too_large_is_one_line(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", COMMAND], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: out of memory: {CODE}: Out of memory allocating 2199023255552 bytes")
    for named in ("dovetail plan", "memory.limit", "another program", "dovetail doctor", "docs/out_of_memory.md"):
        assert named in line
    assert (Path(__file__).parents[3] / "docs" / "out_of_memory.md").exists()


def test_what_is_not_about_memory_is_left_alone():
    assert out_of_memory(ValueError(CODE)) is None
    assert out_of_memory(jax.errors.JaxRuntimeError("INTERNAL: a bug")) is None
    wrapped = RunError("the engine failed")
    wrapped.__cause__ = MemoryError("Unable to allocate 2 TiB")
    assert str(out_of_memory(wrapped)).startswith("out of memory: Unable to allocate 2 TiB; ")
