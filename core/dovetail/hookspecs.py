"""Every hook that a plugin can implement, with one sentence and one example each.

A plugin is a module listed in the entry-point group `dovetail`. Keep its `__init__` light (do not import jax): targets
are imported on first use.

A hook of a plugin has those of the parameters here that it needs, by name. What an observer keeps between the hooks of
a run it keeps by `run.folder`: a notebook or a sweep may train several runs in one process, also at the same time.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pluggy

if TYPE_CHECKING:
    from dovetail.cli.options import Commands
    from dovetail.cli.train import Training
    from dovetail.config import Config

hookspec = pluggy.HookspecMarker("dovetail")
hookimpl = pluggy.HookimplMarker("dovetail")


@attrs.frozen(kw_only=True)
class RunInfo:
    """The run that a hook is about: a process may have several at a time. It is equal in all hooks of a run.

    Attributes:
        folder: the run's folder, `folder.name` its name; no two runs that go on have the same.
        run_id: the id of the config with the seed.
        config_id: the id of what is computed, the same for all seeds.
        config: the config with all defaults, `config.run.seed` among them.
    """

    folder: Path
    run_id: str
    config_id: str
    config: Config = attrs.field(eq=False, repr=False)


@hookspec
def dovetail_components(register: Callable[..., None]) -> None:
    """Register components: `register("policy_loss", "gspo", "acme.losses:gspo", aliases=(), renamed=())`."""


@hookspec
def dovetail_kinds(register_kind: Callable[..., None]) -> None:
    """Open a kind: `register_kind("judge", "mask -> x", stage="corrections", reads="fields", writes=("x",))`."""


@hookspec
def dovetail_sections(register_section: Callable[..., None]) -> None:
    """Open a section of config files: `register_section("acme", "acme.settings:Acme")`, an attrs class."""


@hookspec
def dovetail_commands(commands: Commands) -> None:
    """Add commands to `dovetail`: `commands.add_parser("board", help="rank the runs").set_defaults(run=board)`."""


@hookspec
def dovetail_training(training: Training) -> None:
    """Add to `dovetail train` and `dovetail sft`: `training.parser.add_argument("--tell", metavar="ADDRESS")`."""


@hookspec
def dovetail_completions(what: str, prefix: str) -> list[str] | None:
    """Complete a word on a command line, one of `configs` or `overrides`: `return ["mine.gin", "yours.gin"]`."""


@hookspec
def dovetail_synonyms(known: dict[str, str]) -> None:
    """Lead from other words to the settings that they mean: `known["train.lr"] = "learning_rate optim.lr"`."""


@hookspec
def dovetail_configs(register: Callable[[str | Path], None]) -> None:
    """Ship configs: after `register("configs")`, `dovetail train acme-rl/recipe` finds `recipe.gin` in that folder."""


@hookspec
def dovetail_devices(devices: list[Any]) -> None:
    """JAX's devices are about to be used, and nothing is loaded yet: `print(devices[0].device_kind)`."""


@hookspec
def dovetail_warm_start(config: Any) -> Any:
    """Train the policy before the RL steps (`training/loop.py`): `return warm if config.mine.warm else None`."""


@hookspec
def dovetail_channels(config: Any, several: bool) -> Any:
    """Run the sampler's program elsewhere, also of `several` processes: `return None if several else Mine.open`."""


@hookspec
def dovetail_evaluator(config: Any, scorer: Any, task: Any) -> Any:
    """Evaluate in training (`training/evaluation.py`): `return Mine(task).open if config.mine.evaluates else None`."""


@hookspec
def dovetail_run_start(folder: Path, config_id: str, run_id: str, config: Any, setup: Any, run: RunInfo) -> None:
    """A run starts or resumes, with the pieces in `setup`: `trackers[run.folder] = begin(run.run_id)`."""


@hookspec
def dovetail_step_begin(step: int, run: RunInfo) -> None:
    """A step of reinforcement learning begins, counted from 1 as in the records: `if step == 3: begin_trace()`."""


@hookspec
def dovetail_step_end(phase: str, step: int, metrics: dict[str, float], run: RunInfo) -> None:
    """A step of the phase `sft` or `rl` has ended: `if phase == "rl" and metrics["reward/mean"] > 2: alert()`."""


@hookspec
def dovetail_evaluation(step: int, metrics: dict[str, float], run: RunInfo) -> None:
    """The policy has been evaluated, at step 0 before training: `if metrics["eval/accuracy"] > 0.9: celebrate()`."""


@hookspec
def dovetail_checkpoint(step: int, folder: Path, run: RunInfo) -> None:
    """A checkpoint is complete on disk: `upload(folder)`."""


@hookspec
def dovetail_run_end(status: str, step: int, run: RunInfo) -> None:
    """A run ends after `step` steps of its phase, 'done', 'stopped' or 'failed': `trackers.pop(run.folder)`."""
