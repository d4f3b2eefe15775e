"""Runs of several processes on this machine, each with devices of its own."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from tests.programs import shared

PATIENCE_SECONDS = 600
"""Eight devices on two cores: beside other tests, four processes that train for two steps took up to 120 seconds."""


def free_port() -> int:
    """Return a port that nobody has at the moment, below those that systems give to connections.

    The process that is to listen on it takes seconds to start, in which another test could have been given one of those.
    """
    while True:
        with socket.socket() as tried, suppress(OSError):
            tried.bind(("", port := random.randrange(20_000, 32_000)))
            return port


def start(
    folder: Path,
    arguments: Sequence[str],
    overrides: Sequence[str],
    devices: int = 1,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> subprocess.Popen[str]:
    """Start `dovetail train` with these overrides alone, and these variables in its environment beside our own."""
    config = folder.parent / "empty.gin"
    config.touch()
    sets = [part for override in overrides for part in ("--set", override)]
    own = {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": str(devices), **variables}
    return subprocess.Popen(
        [sys.executable, "-m", "dovetail", "train", str(config), "--folder", str(folder), *arguments, *sets],
        env=os.environ | shared() | own,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def start_several(
    folder: Path,
    count: int,
    overrides: Sequence[str],
    *,
    devices: int = 1,
    more: Sequence[str] = (),
    own: Sequence[Sequence[str]] = (),
    variables: Mapping[str, str] = MappingProxyType({}),
) -> list[subprocess.Popen[str]]:
    """Start the processes of a run; `own` are overrides that only one of them has, by its number."""
    port = free_port()
    own = own or [()] * count
    return [
        start(
            folder,
            ["--coordinator", f"127.0.0.1:{port}", "--processes", str(count), "--process", str(index), *more],
            (*overrides, *own[index]),
            devices,
            variables,
        )
        for index in range(count)
    ]


def newest_state(folder: Path) -> Any:
    """Return all that the newest checkpoint of a run holds, as arrays of the host, whatever devices have written it."""
    path = max((folder / "checkpoints" / "steps").iterdir(), key=lambda step: int(step.name)) / "state"
    with ocp.PyTreeCheckpointer() as checkpointer:
        form = checkpointer.metadata(path).item_metadata.tree
        on_host = jax.tree.map(
            lambda _: ocp.RestoreArgs(restore_type=np.ndarray), form, is_leaf=lambda x: hasattr(x, "shape")
        )
        return path.parent.name, checkpointer.restore(path, args=ocp.args.PyTreeRestore(restore_args=on_host))


def assert_same_state(first: Path, second: Path) -> None:
    """Compare the newest checkpoints of two runs bit for bit."""
    (step, state), (other_step, other) = newest_state(first), newest_state(second)
    assert step == other_step
    jax.tree.map(np.testing.assert_array_equal, state, other)


def ended(processes: Sequence[subprocess.Popen[str]]) -> list[tuple[int, str]]:
    """Wait for processes; return the status and the stderr of each."""
    found = []
    try:
        for process in processes:
            _, said = process.communicate(timeout=PATIENCE_SECONDS)
            found.append((process.returncode, said))
    finally:
        for process in processes:
            process.kill()
            process.communicate()  # an open pipe would be reported in whatever test runs when it is collected
    return found
