"""The memory of a CPU is that of the machine, or what a container leaves of it; an accelerator reports its own."""

import os
import types

import jax
import pytest

from dovetail.config.settings import Memory
from dovetail_memory import device
from dovetail_memory.device import allowed, memory_of

MACHINE = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
UNLIMITED = str((1 << 63) - 4096)


@pytest.fixture
def groups(tmp_path, monkeypatch):
    """Write the files of control groups, and say which one the process is in."""
    monkeypatch.setattr(device, "CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(device, "OWN_GROUP", tmp_path / "own")

    def write(own, limits):
        (tmp_path / "own").write_text(own)
        for name, text in limits.items():
            file = tmp_path / "cgroup" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text + "\n")

    return write


@pytest.mark.parametrize(
    ("own", "limits", "expected"),
    [
        ("0::/\n", {"memory.max": "1048576"}, 1 << 20),
        ("0::/\n", {"memory.max": "max"}, MACHINE),
        ("0::/job/step\n", {"job/memory.max": "2097152", "job/step/memory.max": "max"}, 2 << 20),
        ("4:memory:/\n0::/\n", {"memory/memory.limit_in_bytes": "1048576"}, 1 << 20),
        ("4:memory:/job\n", {"memory/memory.limit_in_bytes": UNLIMITED}, MACHINE),
        ("4:memory:/job\n", {"memory/job/memory.limit_in_bytes": "4096"}, 4096),
        ("", {}, MACHINE),
    ],
)
def test_a_container_may_leave_less(groups, own, limits, expected):
    groups(own, limits)
    assert memory_of(jax.devices("cpu")[0]) == expected
    assert allowed(Memory()) == int(0.9 * expected)
    assert allowed(Memory(limit=0.5)) == 1 << 29


@pytest.mark.parametrize(
    ("reported", "expected"),
    [({"bytes_limit": 80 << 30}, 80 << 30), ({}, device.UNREPORTED), (None, device.UNREPORTED)],
)
def test_an_accelerator_says_how_much_it_has_or_counts_as_a_small_one(reported, expected):
    accelerator = types.SimpleNamespace(platform="gpu", memory_stats=lambda: reported)
    assert memory_of(accelerator) == expected
