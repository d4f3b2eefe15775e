"""The options with which `dovetail train` is one of the processes of a run."""

from __future__ import annotations

import argparse
import platform
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.cli.train import Training

if TYPE_CHECKING:
    from dovetail.config import Config
    from dovetail_executor.hosts.join import Meeting


def add(training: Training) -> None:
    """Add the options, and let training begin when all processes are there."""
    several = training.parser.add_argument_group(
        "one run in several processes, on one host or several (docs/several_hosts.md)"
    )
    several.add_argument(
        "--coordinator",
        metavar="HOST:PORT",
        help="where process 0 is, and a free port there; 'auto' takes all of it from the environment of Slurm,"
        " Kubernetes, Open MPI or a TPU pod",
    )
    several.add_argument("--processes", type=int, metavar="N", help="how many there are")
    several.add_argument("--process", type=int, metavar="I", help="which of them this is, from 0 on")
    several.add_argument(
        "--wait", type=int, default=300, metavar="SECONDS", help="how long to wait for all (default: 300)"
    )
    several.add_argument(
        "--deadline",
        type=int,
        default=60,
        metavar="SECONDS",
        help="a process that is not heard of for so long has died, which ends all (default: 60)",
    )
    training.around.append(together)


def together(options: argparse.Namespace, config: Config, folder: Path) -> AbstractContextManager[None]:
    """Return a context in which this process is one of those that the options speak of."""
    met = meeting(options)
    if met is None:
        return nullcontext()
    from dovetail_executor.hosts.join import joined

    return joined(met, lambda: identity(folder, config))


def meeting(options: argparse.Namespace) -> Meeting | None:
    """Return where the processes of a run meet; None for one that is alone."""
    from dovetail.errors import RunError
    from dovetail_executor.hosts.join import Meeting

    if options.coordinator is None:
        if options.processes is not None or options.process is not None:
            raise RunError("--processes and --process need --coordinator HOST:PORT, the address of process 0")
        return None
    return Meeting(
        coordinator=options.coordinator,
        processes=options.processes,
        process=options.process,
        wait=options.wait,
        deadline=options.deadline,
    )


def identity(folder: Path, config: Config) -> dict[str, Any]:
    """Return the properties that all processes of a run must have in common, by name."""
    import jax

    from dovetail.config.dump import filled, parameters
    from dovetail.config.types import literal
    from dovetail.registry.compatibility import engine_version
    from dovetail.run.code import codes
    from dovetail.run.folder import libraries, plugins

    entries = (*filled(config), *parameters(config.choices.values()))
    return {
        "the run folder": str(folder.absolute()),
        "settings": {entry.key: literal(entry.value) for entry in entries},
        "versions": {"python": platform.python_version(), "dovetail": engine_version(), **plugins(), **libraries()},
        "code of components": codes(config),
        "the kind of its devices": jax.local_devices()[0].device_kind,
        "the number of its devices": jax.local_device_count(),
    }
