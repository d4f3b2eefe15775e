"""The facts about a machine, without any judgement."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import attrs

from dovetail.devices.presence import devices
from dovetail.errors import RunError
from dovetail.run.process import cache_folder, refusal
from dovetail_kit.machine.gpus import Gpu, gpus, smi

LIBRARIES: Final = ("jax", "jaxlib", "jax-cuda12-plugin", "jax-cuda13-plugin", "libtpu")
CUDNN: Final = ("nvidia-cudnn-cu12", "nvidia-cudnn-cu13")
VARIABLES: Final = (
    "JAX_PLATFORMS",
    "CUDA_VISIBLE_DEVICES",
    "XLA_FLAGS",
    "XLA_PYTHON_CLIENT_PREALLOCATE",
    "XLA_PYTHON_CLIENT_MEM_FRACTION",
    "JAX_ENABLE_X64",
    "JAX_COMPILATION_CACHE_DIR",
    "DOVETAIL_VLLM_PYTHON",
)
EXTRAS: Final = {"hf": "tokenizers", "parquet": "pyarrow", "math": "math_verify", "ray": "ray", "vllm": "vllm"}
"""Extras of Dovetail, and a module that each brings."""
SHARED: Final = Path("/dev/shm")
BF16_FLAGS: Final = ("avx512_bf16", "amx_bf16")


@attrs.frozen(kw_only=True)
class Device:
    """A device that JAX sees; memory in bytes, 0 if unknown."""

    kind: str
    limit: int = 0
    used: int = 0


@attrs.frozen(kw_only=True)
class Survey:
    """The facts about a machine.

    Attributes:
        system: operating system and processor.
        cores: number of processor cores.
        memory: bytes of main memory, in total and free.
        has_bf16: whether the processor has bfloat16 arithmetic.
        shared: free bytes in the shared-memory file system, which passes weights to other engines; None without one.
        python: the version of Python.
        versions: the versions of JAX and related packages.
        backend: the platform that JAX uses; empty if it cannot be started.
        error: why JAX cannot be started.
        devices: the devices that JAX sees.
        gpus: the GPUs that the driver lists, before JAX has allocated any memory.
        programs: the programs that are using a GPU now, with their memory in MiB.
        variables: environment variables that affect JAX.
        extras: Dovetail's extras, and whether each is installed.
        cache: the folder for compiled programs.
        cache_is_writable: whether that folder is writable.
    """

    system: str
    cores: int
    memory: int
    free: int
    has_bf16: bool
    shared: int | None
    python: str
    versions: Mapping[str, str]
    backend: str
    error: str
    devices: tuple[Device, ...]
    gpus: tuple[Gpu, ...]
    programs: tuple[str, ...]
    variables: Mapping[str, str]
    extras: Mapping[str, bool]
    cache: str
    cache_is_writable: bool

    @property
    def cudnn(self) -> str:
        """The version of cuDNN that is installed with JAX; empty without one."""
        return next((self.versions[name] for name in CUDNN if name in self.versions), "")


def survey() -> Survey:
    """Look at this machine; starts JAX."""
    there, programs = gpus(), _programs()
    backend, error, found = _started()
    info = _fields(Path("/proc/meminfo"))
    processor = _fields(Path("/proc/cpuinfo"))
    cache = cache_folder()
    return Survey(
        system=f"{platform.platform()}, {processor.get('model name') or platform.processor() or platform.machine()}",
        cores=os.cpu_count() or 1,
        memory=_kibibytes(info.get("MemTotal")),
        free=_kibibytes(info.get("MemAvailable")),
        has_bf16=any(flag in processor.get("flags", "").split() for flag in BF16_FLAGS),
        shared=shutil.disk_usage(SHARED).free if SHARED.is_dir() else None,
        python=platform.python_version(),
        versions={name: version for name in (*LIBRARIES, *CUDNN) if (version := _version(name))},
        backend=backend,
        error=error,
        devices=found,
        gpus=there,
        programs=programs,
        variables={name: os.environ[name] for name in VARIABLES if name in os.environ},
        extras={name: importlib.util.find_spec(module) is not None for name, module in EXTRAS.items()},
        cache=cache,
        cache_is_writable=not refusal(cache),
    )


def _started() -> tuple[str, str, tuple[Device, ...]]:
    try:
        found = devices()
    except RunError as error:
        return "", str(error), ()
    return found[0].platform, "", tuple(_device(device) for device in found)


def _device(device: Any) -> Device:
    stats = device.memory_stats() or {}
    return Device(kind=device.device_kind, limit=stats.get("bytes_limit", 0), used=stats.get("bytes_in_use", 0))


def _programs() -> tuple[str, ...]:
    rows = smi("--query-compute-apps=pid,process_name,used_memory", "--format=csv,noheader,nounits")
    mine = str(os.getpid())
    return tuple(f"{row[1]} (process {row[0]}, {row[2]} MiB)" for row in rows if len(row) > 2 and row[0] != mine)


def _fields(file: Path) -> dict[str, str]:
    """Read lines of `name: value`; the first of each name."""
    if not file.is_file():
        return {}
    found: dict[str, str] = {}
    for line in file.read_text(errors="replace").splitlines():
        name, colon, value = line.partition(":")
        if colon:
            found.setdefault(name.strip(), value.strip())
    return found


def _kibibytes(text: str | None) -> int:
    return int(text.split()[0]) * 1024 if text else 0


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
