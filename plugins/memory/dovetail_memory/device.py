"""The memory of a device, and how much of it may be used."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import jax

from dovetail.config.settings import Memory

SHARE: Final = 0.9
"""The share of a device's memory that may be used if `memory.limit` is not set."""
UNREPORTED: Final = 16 << 30
"""Bytes assumed of an accelerator whose allocator reports no limit: those of the smallest that models are trained on, a
T4 or a TPU v5e. What is planned for it fits on a larger one too; `memory.limit` says how much there is."""
PROGRAM: Final = 640 << 20
"""Bytes that Python and JAX need in a host's memory, which is also the memory of its CPU device."""

CGROUPS: Final = Path("/sys/fs/cgroup")
OWN_GROUP: Final = Path("/proc/self/cgroup")
LIMITS: Final = {"": "memory.max", "memory": "memory.limit_in_bytes"}
"""The file with a group's limit, by the controller: version 2 of Linux's control groups has a single hierarchy."""


def memory_of(device: Any) -> int:
    """Return the size of a device's memory in bytes.

    A CPU's is that of the machine, or of the container; that of an accelerator which does not report it `UNREPORTED`.
    """
    if device.platform == "cpu":
        return min([os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *_limits_of_container()])
    return (device.memory_stats() or {}).get("bytes_limit", UNREPORTED)


def _limits_of_container() -> list[int]:
    """Return the limits of this process's control group and of those around it, as containers and batch jobs set them.

    A container sees its own group as the root. Version 2 writes `max` where there is no limit, version 1 a huge number.
    """
    lines = OWN_GROUP.read_text().splitlines() if OWN_GROUP.is_file() else []
    paths = {controllers: path for _, controllers, path in (line.split(":", 2) for line in lines)}
    found = []
    for controller, name in LIMITS.items():
        own = CGROUPS / controller / paths.get(controller, "/").lstrip("/")
        files = [group / name for group in (own, *own.parents) if group.is_relative_to(CGROUPS)]
        found += [file.read_text().strip() for file in files if file.is_file()]
    return [int(text) for text in found if text.isdigit()]


def allowed(settings: Memory) -> int:
    """Return the bytes of each device that may be used."""
    if settings.limit is not None:
        return int(settings.limit * 2**30)
    return int(SHARE * memory_of(jax.devices()[0]))


def base() -> int:
    """Return the bytes of the device's memory that a process needs without any arrays."""
    return PROGRAM if jax.devices()[0].platform == "cpu" else 0
