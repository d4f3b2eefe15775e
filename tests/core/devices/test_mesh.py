"""The same loss and gradients on one device and on eight."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh
from tests.core.devices.sharded import MESHES, VARIANTS
from tests.core.training.tiny import TINY
from tests.devices import EIGHT

from dovetail.config import load
from dovetail.config.settings import Mesh
from dovetail.devices.mesh import AXES, KINDS, Devices, by_device, by_row, to_device, to_host
from dovetail.errors import ConfigError
from dovetail.run.summary import series
from dovetail.training.loop import train

ROOT = Path(__file__).parents[3]


TOGETHER = (MESHES[0], MESHES[-1])
"""One device, and a mesh that cuts rows, their tokens and matrices: what goes wrong on one axis goes wrong there, too."""
ALONE = (MESHES[0], (8, 1, 1), (1, 4, 1))
"""A row for each device, and rows in more pieces than two."""
CASES = [
    pytest.param(("full", ALONE), id="full"),
    # whose models and losses are those of "full"
    *(pytest.param((variant, TOGETHER), id=variant) for variant in ("dora, sorted by length", "packed")),
    *(
        pytest.param((variant, MESHES), id=f"{variant}, every mesh", marks=pytest.mark.exhaustive)
        for variant in VARIANTS
    ),
]


@pytest.fixture(scope="module", params=CASES)
def case(request) -> tuple[str, tuple[tuple[int, int, int], ...]]:
    return request.param


@pytest.fixture(scope="module")
def found(case, tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    variant, meshes = case
    return on_eight_devices(tmp_path_factory.mktemp("mesh") / "found.npz", variant, *map(named, meshes))


def named(mesh: tuple[int, int, int]) -> str:
    return "x".join(map(str, mesh))


def on_eight_devices(path: Path, *words: str) -> dict[str, np.ndarray]:
    command = [sys.executable, "-m", "tests.core.devices.sharded", str(path), *words]
    done = subprocess.run(command, env=EIGHT, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return dict(np.load(path))


@pytest.mark.slow
def test_loss_and_gradients_do_not_depend_on_the_mesh(found: dict[str, np.ndarray], case) -> None:
    names = [name.split(":", 1)[1] for name in found if name.startswith("1x1x1:")]
    assert any("policy/blocks" in name for name in names)
    assert any("critic/" in name for name in names)
    for mesh in map(named, case[1][1:]):
        for name in set(names) - {"cut"}:
            alone, together = found[f"1x1x1:{name}"], found[f"{mesh}:{name}"]
            np.testing.assert_allclose(together, alone, rtol=1e-4, atol=1e-5, err_msg=f"{mesh}: {name}")
    assert any(np.abs(found[f"1x1x1:{name}"]).max() > 1e-3 for name in names if name.startswith("policy/blocks"))


@pytest.mark.slow
def test_parameters_are_really_cut(found: dict[str, np.ndarray], case) -> None:
    assert found["1x1x1:cut"] == 0
    assert all(found[f"{named(mesh)}:cut"] > 0 for mesh in case[1][1:])


@pytest.mark.slow
def test_a_device_has_activations_and_logits_of_its_own_rows_and_tokens_alone(tmp_path: Path) -> None:
    for what, (alone, together) in on_eight_devices(tmp_path / "found.npz").items():
        assert together < alone / 4, what


def test_too_few_devices_are_refused() -> None:
    with pytest.raises(
        ConfigError,
        match=r"mesh.fsdp = 4 times mesh.cp = 2 times mesh.tp = 1000 needs 8000 devices; there (is|are) \d+ \(cpu\)",
    ):
        Devices.open(Mesh(fsdp=4, cp=2, tp=1000))


def test_the_devices_that_share_rows_and_their_tokens_divide_parameters_too() -> None:
    devices = Devices.abstract(Mesh(fsdp=2, cp=3, tp=2))
    place = devices.place(("vocab", "width"), (8, 12))
    assert place is not None
    assert place.shard_shape((8, 12)) == (4, 2)
    uneven = devices.place(("vocab", "width"), (8, 10))
    assert uneven is not None
    assert uneven.shard_shape((8, 10)) == (4, 10)


@pytest.mark.parametrize("parts", [1, 2, 4])
def test_the_positions_of_a_device_are_a_part_of_each_of_its_rows(parts: int) -> None:
    array = np.arange(6 * 8).reshape(6, 8)
    with jax.sharding.use_abstract_mesh(AbstractMesh((3, parts, 1), AXES, KINDS)):
        cut = by_device(jnp.asarray(array), parts)
        np.testing.assert_array_equal(by_row(cut.reshape(-1), 6, parts), array)
    width = 8 // parts
    for row in range(3):
        for part in range(parts):
            here = array[2 * row : 2 * row + 2, width * part : width * part + width]
            np.testing.assert_array_equal(cut[parts * row + part], here.ravel())


def test_one_device_needs_no_mesh() -> None:
    devices = Devices.open(Mesh())
    assert devices.mesh is None
    assert devices.place(("vocab", "width"), (8, 8)) is None


def test_arrays_wait_in_the_memory_of_the_host() -> None:
    batch = Devices.open(Mesh()).rows({"tokens": np.arange(6).reshape(2, 3)})
    waiting = to_host(batch)
    assert waiting["tokens"].sharding.memory_kind == "pinned_host"
    back = to_device(waiting)
    assert back["tokens"].sharding == batch["tokens"].sharding
    np.testing.assert_array_equal(back["tokens"], batch["tokens"])


WIDE = (*TINY, "model.decoder.width=32", "model.decoder.kv_heads=2", "train.kl_coef=0.05", "train.max_prompt_tokens=12")
HOST = ("memory.reference='host'", "memory.optimizer='host'")


@pytest.mark.slow
def test_what_waits_on_the_host_changes_nothing(tmp_path: Path) -> None:
    train(load(None, WIDE), tmp_path / "device")
    train(load(None, [*WIDE, *HOST]), tmp_path / "host")
    assert (tmp_path / "host" / "metrics.jsonl").read_bytes() == (tmp_path / "device" / "metrics.jsonl").read_bytes()


def trained(folder: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    """Train on eight devices in a process of its own."""
    sets = [part for override in (*WIDE, *overrides) for part in ("--set", override)]
    command = [
        sys.executable,
        "-m",
        "dovetail",
        "train",
        str(folder.parent / "empty.gin"),
        "--folder",
        str(folder),
        *sets,
    ]
    return subprocess.run(command, env=EIGHT, capture_output=True, text=True, check=False, cwd=folder.parent)


@pytest.mark.slow
def test_a_run_goes_on_under_another_mesh(tmp_path: Path) -> None:
    (tmp_path / "empty.gin").write_text("")
    train(load(None, WIDE), tmp_path / "one")
    done = trained(tmp_path / "many", "mesh.fsdp=2", "mesh.cp=2", "mesh.tp=2")
    assert done.returncode == 0, done.stderr
    last = tmp_path / "many" / "checkpoints" / "steps"
    newest = max(map(int, os.listdir(last)))
    shutil.rmtree(last / str(newest))  # as if it had been killed after the checkpoint before
    again = trained(tmp_path / "many", "mesh.fsdp=2", "mesh.cp=4", "mesh.tp=1")
    assert again.returncode == 0, again.stderr
    for name in ("policy_loss/loss", "reward/mean", "kl/mean"):
        alone, spread = (np.array(series(tmp_path / each, name)) for each in ("one", "many"))
        np.testing.assert_allclose(spread, alone, rtol=1e-3, atol=1e-4, err_msg=name)
