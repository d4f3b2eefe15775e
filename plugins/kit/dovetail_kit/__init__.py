"""Tools for authors of plugins: a scaffold for packages, a doctor, and the conformance suite.

The public interface consists of the commands, the pytest option `--dovetail-dist` with its hook, `dovetail_kit.rollout`
for tests of a rollout engine, and `dovetail_kit.workers`, with which components call a function with a time limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.hookspecs import hookimpl

if TYPE_CHECKING:
    from dovetail.cli.options import Commands
    from dovetail.cli.train import Training


@hookimpl
def dovetail_devices() -> None:
    """Warn of a GPU that JAX does not use."""
    from dovetail_kit.machine.gpus import warn_if_unseen

    warn_if_unseen()


@hookimpl
def dovetail_completions(what: str, prefix: str) -> list[str] | None:
    """Complete the names of configs, and settings with their values."""
    from dovetail_kit import completions

    return {"configs": completions.configs, "overrides": completions.overrides}[what](prefix)


@hookimpl
def dovetail_synonyms(known: dict[str, str]) -> None:
    """Know what other libraries call a setting."""
    from dovetail_kit.peers import PEERS

    known.update(PEERS)


@hookimpl
def dovetail_commands(commands: Commands) -> None:
    """Add the commands on configs, components, plugins and the machine."""
    from dovetail_kit import cli
    from dovetail_kit.commands import completion, configs, names

    for group in (configs, names, completion, cli):
        group.add(commands)


@hookimpl
def dovetail_training(training: Training) -> None:
    """Warn of settings that are probably not intended before a run begins."""
    from dovetail_kit.notices import before_training

    training.around.append(before_training)
