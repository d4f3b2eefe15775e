"""What surrounds training: evaluating and exporting a policy, sweeps and A/B tests of many, reports about them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dovetail.hookspecs import hookimpl

if TYPE_CHECKING:
    from dovetail.cli.options import Commands
    from dovetail.cli.train import Training


@hookimpl
def dovetail_kinds(register_kind: Callable[..., None]) -> None:
    """Open the kinds of what a sweep is made of."""
    from dovetail_lab.kinds import KINDS

    for kind in KINDS:
        register_kind(kind)


@hookimpl
def dovetail_sections(register_section: Callable[..., None]) -> None:
    """Open the sections of commands over many runs: a config file may have them, no run has."""
    register_section("sweep", "dovetail_lab.settings:Sweep", purpose="experiment")
    register_section("ab", "dovetail_lab.settings:AB", purpose="experiment")


@hookimpl
def dovetail_commands(commands: Commands) -> None:
    """Add the commands on one policy (`eval`, `generate`, `play`, `export`), on one run (`replay`, `simulate`), over
    many runs (`sweep`, `ab`, `report`), and `import-config`."""
    from dovetail_lab.cli import ab, eval, export, generate, import_config, play, replay, report, simulate, sweep

    for group in (eval, generate, play, export, replay, sweep, ab, report, simulate, import_config):
        group.add(commands)


@hookimpl
def dovetail_evaluator(config: Any, scorer: Any, task: Any) -> Any:
    """Evaluate on the held-out examples of the task."""
    from dovetail_lab.evaluation.evaluate import during_training

    return during_training(config, scorer, task)


@hookimpl
def dovetail_training(training: Training) -> None:
    """Add `--profile` to `dovetail train`, the summary at the end, and a word on a run that it does not resume."""
    from dovetail_lab import summary
    from dovetail_lab.cli import elsewhere, profile

    profile.add(training)
    training.around.extend([summary.summarised, elsewhere.warned])
