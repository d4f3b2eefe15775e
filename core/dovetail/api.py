"""What `dovetail.load` and `dovetail.train` are: the commands of these names, for notebooks and scripts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dovetail.config import Config
from dovetail.config import load as read
from dovetail.run.opened import RecordedRun, open_run
from dovetail.shipped import find

Settings = Mapping[str, Any] | Sequence[str]
"""What goes before a config file: `{"train.lr": 1e-4}`, or texts as `--set` takes them, `["train.lr=1e-4"]`."""


def texts(settings: Settings) -> list[str]:
    """Return settings as `--set` takes them.

    >>> texts({"train.policy_loss": "gspo", "train.lr": 1e-4}), texts(["train.lr=1e-4"])
    (["train.policy_loss='gspo'", 'train.lr=0.0001'], ['train.lr=1e-4'])
    """
    if isinstance(settings, Mapping):
        return [f"{key}={value!r}" for key, value in settings.items()]
    return list(settings)


def load(config: str | Path, settings: Settings = ()) -> Config:
    """Read a config, check it whole and plan its step.

    Args:
        config: a gin file, or the name of a config that is shipped, such as `quickstart`.
        settings: what goes before what the file says.

    Raises:
        ConfigError: with one line for each thing that is wrong, each with its place.
        PlanError: if a chosen component reads what nobody provides.
    """
    return read(find(str(config)), texts(settings))


def train(config: Config | str | Path, folder: str | Path | None = None, settings: Settings = ()) -> RecordedRun:
    """Train to the end, or go on where an interrupted run in the folder stands; return what the run has recorded.

    Args:
        config: what `dovetail.load` returns, or its first argument.
        folder: of the run; by default `run.folder` of the config, or `runs/CONFIG-RUNID`.
        settings: as for `dovetail.load`; for a config that is loaded already they are refused.

    Raises:
        DovetailError: if the config or the run is at fault; checkpoints and records written so far stay.
    """
    if isinstance(config, Config):
        if settings:
            raise ValueError("the config is loaded already: give its settings to dovetail.load")
        loaded, name = config, "run"
    else:
        loaded, name = load(config, settings), Path(config).stem
    from dovetail.run.process import prepare

    prepare()
    from dovetail.run.folder import default_folder
    from dovetail.train.loop import train as run

    where = Path(folder or loaded.run.folder or default_folder(loaded, name))
    run(loaded, where)
    return open_run(where)
