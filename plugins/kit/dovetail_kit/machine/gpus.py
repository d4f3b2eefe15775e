"""Detects accelerators in the machine, whether or not JAX uses them."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import warnings
from pathlib import Path
from typing import Final

import attrs

from dovetail.devices.presence import devices
from dovetail.errors import DovetailWarning

DEVICES: Final = Path("/dev")
SMI: Final = "nvidia-smi"
QUERY: Final = ("name", "driver_version", "compute_cap", "memory.total", "memory.used")
SMI_SECONDS: Final = 10.0
CUDA_13_DRIVER: Final = 580
"""The first driver version that runs programs built for CUDA 13."""


@attrs.frozen(kw_only=True)
class Gpu:
    """An NVIDIA GPU as described by its driver; memory is in MiB. Without a driver only its device file is known."""

    name: str = "an NVIDIA GPU"
    driver: str = ""
    capability: str = ""
    total: int = 0
    used: int = 0

    @property
    def extra(self) -> str:
        """The extra of JAX that this driver can run."""
        major = self.driver.partition(".")[0]
        return "cuda13" if major.isdigit() and int(major) >= CUDA_13_DRIVER else "cuda12"


def gpus() -> tuple[Gpu, ...]:
    """Return the GPUs that `nvidia-smi` lists, or those that have a device file."""
    rows = smi(f"--query-gpu={','.join(QUERY)}", "--format=csv,noheader,nounits")
    if rows:
        return tuple(_gpu(row) for row in rows)
    return tuple(Gpu() for _ in DEVICES.glob("nvidia[0-9]*"))


def smi(*arguments: str) -> list[list[str]]:
    """Return the rows of a table of `nvidia-smi`; empty if it is missing or does not answer."""
    if shutil.which(SMI) is None:
        return []
    try:
        done = subprocess.run([SMI, *arguments], capture_output=True, text=True, timeout=SMI_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    lines = done.stdout.splitlines() if done.returncode == 0 else []
    return [[word.strip() for word in line.split(",")] for line in lines if line.strip()]


def _gpu(row: list[str]) -> Gpu:
    found: dict[str, str] = dict(zip(QUERY, row, strict=False))
    memory = {
        name: int(text) if (text := found.get(f"memory.{name}", "")).isdigit() else 0 for name in ("total", "used")
    }
    return Gpu(
        name=found["name"],
        driver=found.get("driver_version", ""),
        capability=found.get("compute_cap", ""),
        **memory,
    )


def unseen(there: tuple[Gpu, ...], platform: str) -> str | None:
    """Return advice if there is a GPU that JAX does not use, else None.

    >>> unseen((), "cpu"), unseen((Gpu(),), "gpu")
    (None, None)
    >>> print(unseen((Gpu(name="NVIDIA H100", driver="570.1"),), "cpu"))
    there is a GPU (NVIDIA H100), and JAX computes on the CPU: pip install -U 'jax[cuda12]' installs JAX for it
    """
    if not there or platform in ("gpu", "cuda"):
        return None
    said = f"there is a GPU ({there[0].name}), and JAX computes on the {platform.upper()}"
    if os.environ.get("CUDA_VISIBLE_DEVICES") == "":
        return f"{said}: CUDA_VISIBLE_DEVICES is empty, which hides it"
    return f"{said}: pip install -U 'jax[{there[0].extra}]' installs JAX for it"


@functools.cache
def warn_if_unseen() -> None:
    """Warn once per process if a GPU is not used, unless JAX_PLATFORMS selects another platform."""
    if os.environ.get("JAX_PLATFORMS"):
        return
    if (said := unseen(gpus(), devices()[0].platform)) is not None:
        warnings.warn(
            f"{said}; JAX_PLATFORMS=cpu says that this is meant, `dovetail doctor` says more",
            DovetailWarning,
            stacklevel=2,
        )
