"""`dovetail.load` and `dovetail.train`: reading a config and training, from notebooks and scripts."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dovetail.config import Config
from dovetail.config import load as read
from dovetail.interruptions import interruptions
from dovetail.run.opened import RecordedRun, open_run
from dovetail.shipped import find

Settings = Mapping[str, Any] | Sequence[str]
"""Settings that override a config file: `{"train.lr": 1e-4}`, or strings as for `--set`, `["train.lr=1e-4"]`."""


def texts(settings: Settings) -> list[str]:
    """Return settings as strings in the form that `--set` takes.

    >>> texts({"train.policy_loss": "gspo", "train.lr": 1e-4}), texts(["train.lr=1e-4"])
    (["train.policy_loss='gspo'", 'train.lr=0.0001'], ['train.lr=1e-4'])
    >>> texts({"train.lr": np.float32(0.5), "task.records.path": [Path("one.jsonl")]})
    ['train.lr=0.5', "task.records.path=['one.jsonl']"]
    """
    if isinstance(settings, Mapping):
        return [f"{key}={_plain(value)!r}" for key, value in settings.items()]
    return list(settings)


def _plain(value: Any) -> Any:
    """Return what gin has for a path or a number of numpy or JAX, also in a list or tuple."""
    if isinstance(value, list | tuple):
        return type(value)(map(_plain, value))
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return value.item() if hasattr(value, "item") and np.ndim(value) == 0 else value


def load(config: str | Path, settings: Settings = ()) -> Config:
    """Read a config, check all of it and plan its step.

    Args:
        config: a gin file, or the name of a shipped config such as `quickstart`.
        settings: settings that override those of the file.

    Raises:
        ConfigError: with one line for each problem, each with its location.
        PlanError: if a chosen component reads a field that nothing provides.
    """
    return read(find(str(config)), texts(settings))


def train(config: Config | str | Path, folder: str | Path | None = None, settings: Settings = ()) -> RecordedRun:
    """Train to the end, resuming the run in the folder if there is one; return the records of the run.

    What it sets in the process (the handlers of signals, hooks for errors, JAX's cache of compiled programs, a level of
    logging) is as before when it returns.

    Args:
        config: a config that `dovetail.load` returned, or an argument for it: a gin file, or a shipped config's name.
        folder: the run folder; by default `run.folder` of the config, or else `runs/CONFIG-RUNID`.
        settings: as for `dovetail.load`; only for a config that is not loaded yet.

    Raises:
        ValueError: if there are settings and the config is already loaded.
        DovetailError: if the config is invalid or the run fails; checkpoints and records written so far are kept.
        KeyboardInterrupt: on Ctrl-C, after the update at hand, once the state is saved; so, too, on SIGTERM and SIGHUP.
    """
    if isinstance(config, Config):
        if settings:
            raise ValueError("the config is loaded already: give its settings to dovetail.load")
        loaded, name = config, "run"
    else:
        loaded, name = load(config, settings), Path(config).stem
    from dovetail.run.process import prepared

    with prepared(), interruptions():
        from dovetail.run.folder import default_folder
        from dovetail.training.loop import train as run

        where = Path(folder or loaded.run.folder or default_folder(loaded, name))
        run(loaded, where)
    return open_run(where)
