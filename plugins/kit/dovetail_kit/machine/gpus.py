"""Detects accelerators in the machine, whether or not JAX uses them."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from dovetail.devices.presence import devices
from dovetail.errors import DovetailWarning

if TYPE_CHECKING:
    from dovetail.config import Config

DEVICES: Final = Path("/dev")
SMI: Final = "nvidia-smi"
QUERY: Final = ("name", "driver_version", "compute_cap", "memory.total", "memory.used")
SMI_SECONDS: Final = 10.0
OLDEST_WITH_BF16: Final = 8.0
"""Compute capability of the first GPUs with bfloat16, and with cuDNN's attention (Ampere)."""
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
    def lacks_bf16(self) -> bool:
        """Whether it is known to have no bfloat16 arithmetic."""
        return bool(self.capability) and float(self.capability) < OLDEST_WITH_BF16

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
    capability = found.get("compute_cap", "")
    return Gpu(
        name=found["name"],
        driver=found.get("driver_version", ""),
        capability=capability if re.fullmatch(r"\d+(\.\d+)?", capability) else "",  # else [N/A]
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


def warn_of_bfloat16(config: Config) -> None:
    """Warn if a model is set to compute in bfloat16 and a GPU has no arithmetic of this type.

    Its driver is asked, not JAX, whose devices may not be opened yet. A GPU that JAX does not use is not a matter of
    types; `warn_if_unseen` is about it.
    """
    models = {choice.component.label: choice for choice in config.choices.values() if choice.component.kind == "model"}
    settings = [f"{label}.dtype" for label, choice in models.items() if choice.params.get("dtype") == "bfloat16"]
    if not settings or os.environ.get("JAX_PLATFORMS", "cuda") not in ("cuda", "gpu"):
        return
    for gpu in gpus():
        if gpu.lacks_bf16:
            warnings.warn(
                f"{settings[0]} = 'bfloat16', and {gpu.name} has no arithmetic of this type (compute capability"
                f" {gpu.capability}, {OLDEST_WITH_BF16:.1f} is needed): it is emulated, which is slow; set"
                f" {settings[0]} = 'float32'",
                DovetailWarning,
                stacklevel=2,
            )
            return
