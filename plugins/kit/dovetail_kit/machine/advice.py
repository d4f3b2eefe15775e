"""Rules about what does not work or is slow on a machine; each is a function of the facts alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Literal

import attrs

from dovetail.progress import in_bytes
from dovetail_kit.machine.gpus import OLDEST_WITH_BF16, unseen
from dovetail_kit.machine.survey import Survey

Level = Literal["error", "slow", "note"]

SMALL: Final = 2 << 30
"""Bytes of memory that a run of a small language model needs at least."""
SMALL_SHARED: Final = 1 << 30


@attrs.frozen
class Finding:
    """One line of advice: the problem, its cause, and the remedy."""

    level: Level
    text: str

    def __str__(self) -> str:
        return f"{self.level}: {self.text}"


def findings(facts: Survey) -> list[Finding]:
    """Return all findings, errors first."""
    found = [finding for rule in RULES for finding in rule(facts)]
    return sorted(found, key=lambda finding: ("error", "slow", "note").index(finding.level))


def _platform(facts: Survey) -> Iterator[Finding]:
    if facts.error:
        yield Finding("error", facts.error)
    elif (said := unseen(facts.gpus, facts.backend)) is not None:
        asked = facts.variables.get("JAX_PLATFORMS")
        if asked and "cuda" not in asked and "gpu" not in asked:
            yield Finding("note", f"there is a GPU ({facts.gpus[0].name}), and JAX_PLATFORMS={asked} leaves it alone")
        else:
            yield Finding("error", said)


def _no_driver(facts: Survey) -> Iterator[Finding]:
    built = [name for name in facts.versions if name.startswith("jax-cuda")]
    if built and not facts.gpus:
        yield Finding(
            "error",
            f"{built[0]} is installed, and no GPU answers: nvidia-smi must list one, so install its"
            " driver, or start the container with --gpus all",
        )


def _versions(facts: Survey) -> Iterator[Finding]:
    wanted = facts.versions.get("jaxlib")
    for name, version in facts.versions.items():
        if name.startswith("jax-cuda") and version != wanted:
            yield Finding(
                "error",
                f"{name} is {version} and jaxlib {wanted}; they belong together: pip install -U"
                f" 'jax[{name.split('-')[1]}]'",
            )


def _others_on_the_gpu(facts: Survey) -> Iterator[Finding]:
    for gpu in facts.gpus:
        if gpu.total and gpu.used > gpu.total / 5:
            who = f" by {', '.join(facts.programs)}" if facts.programs else ""
            taken = f"{gpu.used:,} of {gpu.total:,} MiB of {gpu.name} are taken{who}"
            yield Finding(
                "error",
                f"{taken}: JAX takes 75 % when it starts, and fails; end the other program, or set"
                " XLA_PYTHON_CLIENT_MEM_FRACTION",
            )


def _capability(facts: Survey) -> Iterator[Finding]:
    for gpu in facts.gpus:
        if gpu.lacks_bf16:
            needed = f"compute capability {gpu.capability}, {OLDEST_WITH_BF16:.1f} is needed"
            yield Finding(
                "slow",
                f"{gpu.name} has no bfloat16 and no attention of cuDNN ({needed}): set model.pretrained.dtype ="
                " 'float32'",
            )


def _cudnn(facts: Survey) -> Iterator[Finding]:
    if facts.backend in ("gpu", "cuda") and not facts.cudnn:
        yield Finding("note", "cuDNN is not from a package: its attention is used if JAX finds the system's")


def _on_cpu(facts: Survey) -> Iterator[Finding]:
    if facts.backend != "cpu":
        return
    if not facts.has_bf16:
        yield Finding(
            "slow",
            "the processor has no bfloat16: products are converted to float32 and back, so it saves"
            " memory and costs time; set model.pretrained.dtype = 'float32' where that fits",
        )
    if not facts.gpus:
        yield Finding(
            "slow",
            f"{facts.cores} cores and no accelerator: models of up to about 0.1 billion parameters"
            " train in minutes, larger ones in days (docs/which_recipe.md)",
        )


def _memory(facts: Survey) -> Iterator[Finding]:
    if facts.free and facts.free < SMALL:
        yield Finding(
            "slow",
            f"{in_bytes(facts.free)} of {in_bytes(facts.memory)} of memory are free: a run that needs"
            " more is swapped or killed (`dovetail plan CONFIG` says what it needs)",
        )
    if facts.shared is not None and facts.shared < SMALL_SHARED:
        yield Finding(
            "note",
            f"/dev/shm has {in_bytes(facts.shared)}: weights for vLLM must fit in it, or set"
            " rollout.vllm.handover (in a container: --shm-size)",
        )


def _several(facts: Survey) -> Iterator[Finding]:
    if len(facts.devices) > 1:
        count = len(facts.devices)
        yield Finding(
            "slow",
            f"a run uses one of {count} devices unless mesh.fsdp or mesh.tp says otherwise: --set mesh.fsdp={count}",
        )


def _settings(facts: Survey) -> Iterator[Finding]:
    if facts.variables.get("JAX_ENABLE_X64", "").lower() in ("1", "true"):
        yield Finding("slow", "JAX_ENABLE_X64 makes numbers twice as wide; nothing here needs it")
    if facts.variables.get("XLA_PYTHON_CLIENT_PREALLOCATE", "").lower() in ("0", "false") and facts.gpus:
        yield Finding(
            "slow",
            "XLA_PYTHON_CLIENT_PREALLOCATE=false takes memory piece by piece, which is slower and can"
            " run out by fragmentation",
        )
    if not facts.cache_is_writable:
        yield Finding(
            "slow",
            f"'{facts.cache}' cannot be written, so that every start compiles again: set JAX_COMPILATION_CACHE_DIR",
        )


RULES: Final[tuple[Callable[[Survey], Iterator[Finding]], ...]] = (
    _platform,
    _no_driver,
    _versions,
    _others_on_the_gpu,
    _capability,
    _cudnn,
    _on_cpu,
    _memory,
    _several,
    _settings,
)
