"""A run's folder: the run that it belongs to, and its contents."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
import time
from collections import Counter
from contextlib import ExitStack, closing
from importlib import metadata
from pathlib import Path
from typing import Any

import attrs

from dovetail.config import Config, config_id, dump, run_id
from dovetail.config.located import FILES as PATHS
from dovetail.config.located import note_files
from dovetail.devices.presence import devices
from dovetail.errors import RunError, printable
from dovetail.registry import current
from dovetail.run.code import CODE, claim_code
from dovetail.run.extended import CHANGES, STEPS, change, changes, ends
from dovetail.run.files import read_record, write_whole
from dovetail.run.journal import FILES, MESSAGES, Journal, Silent, keeps_messages
from dovetail.run.sole import Sole, hold_alone
from dovetail.run.sources import SOURCES

LIBRARIES = (
    *("jax", "jaxlib", "jax-cuda12-plugin", "jax-cuda13-plugin", "libtpu", "nvidia-cudnn-cu12", "nvidia-cudnn-cu13"),
    *("flax", "optax", "orbax-checkpoint", "grain", "numpy", "sentencepiece"),
)
"""The numerical libraries to record, including those of accelerators if they are installed."""
CONFIG, IDENTITY, ENVIRONMENT, LOCK = "config.gin", "run.json", "environment.json", "lock"
CHECKPOINTS = "checkpoints"
MEMORY = "memory.json"
"""The sizes with which a run began; see `dovetail.training.settled`."""
SHOWN_DIFFERENCES = 8


@attrs.frozen(kw_only=True)
class RunFolder:
    """An open run folder, locked by this process until it ends."""

    path: Path
    config_id: str
    run_id: str
    journal: Journal
    lock: Sole | None = None
    ends: tuple[int, ...] = ()
    """The numbers of steps that were the last ones before the run was extended."""

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints."""
        return self.path / CHECKPOINTS

    def close(self) -> None:
        """Close the journal and release the folder."""
        self.journal.close()
        if self.lock is not None:
            self.lock.close()


def default_folder(config: Config, name: str) -> Path:
    """Return `runs/NAME-RUN_ID`."""
    return Path("runs") / f"{name}-{run_id(config)}"


def open_folder(path: Path, config: Config) -> RunFolder:
    """Create a run's folder, or open it again to resume the run.

    Raises:
        RunError: if it cannot be written, is in use by another process, or belongs to another config; the message
            shows the difference.
    """
    _see_that_utf8(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
        _see_that_own(path)
        with ExitStack() as undo:
            lock = undo.enter_context(closing(hold_alone(path / LOCK, f"run folder '{path}'")))
            _claim(path, config)
            claim_code(path, config)
            note_files(path, config)
            _note_environment(path)
            folder = _described(path, config)
            journal = Journal(path, *([MESSAGES] if keeps_messages(config) else []))
            undo.pop_all()
        return attrs.evolve(folder, journal=journal, lock=lock)
    except (OSError, ValueError) as error:  # ValueError: a null byte in the path
        reason = getattr(error, "strerror", None) or error
        raise RunError(f"run folder '{path}' cannot be written: {reason}") from error


def follow_folder(path: Path, config: Config) -> RunFolder:
    """Return the folder opened by process 0, for another process of the run, which does not write records.

    Raises:
        RunError: if the folder does not exist on this host.
    """
    if not (path / IDENTITY).exists():
        raise RunError(
            f"run folder '{path.absolute()}', which process 0 has opened, is not there on {platform.node()}: --folder"
            " must be on a disk that all hosts share"
        )
    return _described(path, config)


def _described(path: Path, config: Config) -> RunFolder:
    extended = ends(changes(path / IDENTITY), config.train.staleness)
    return RunFolder(path=path, config_id=config_id(config), run_id=run_id(config), journal=Silent(), ends=extended)


def branch_folder(source: Path, path: Path, config: Config) -> None:
    """Make the folder of a run that goes on from what another one has come to: its checkpoints and its records.

    What a kill left of an earlier attempt is made again.
    """
    shutil.rmtree(path / CHECKPOINTS, ignore_errors=True)
    shutil.copytree(source / CHECKPOINTS, path / CHECKPOINTS)
    for file in _kept(source):
        shutil.copy2(file, path)
    _sign(path, config)


def _claim(path: Path, config: Config) -> None:
    identity = path / IDENTITY
    mine = run_id(config)
    if not identity.exists():
        _see_that_new(path, dump(config))
    elif (theirs := read_record(identity, run_id=str)["run_id"]) == mine or _extend(path, config, theirs):
        _see_that_whole(path)
        if _steps(path) not in ("", str(config.train.steps)):  # a kill may have come before this
            write_whole(path / CONFIG, dump(config))
    elif _has_begun(path):
        raise RunError(
            f"run folder '{path}' belongs to run {theirs}, this one is {mine}:"
            f" {_what_differs(path, config)}. Choose another --folder, or repeat the command of that run to resume it"
        )
    else:
        _forget(path)
    if not identity.exists():
        _sign(path, config)


def _extend(path: Path, config: Config, theirs: str) -> bool:
    """Write that a run which has begun goes on to other `train.steps`, if it differs in nothing else."""
    numbers = [int(each.name) for each in (path / CHECKPOINTS / "steps").glob("*") if each.name.isdecimal()]
    now = change(path, config, theirs, _steps(path), numbers) if _has_begun(path) else None
    if now:
        _identify(path, config, {CHANGES: [*changes(path / IDENTITY), now]})
        said = f"{STEPS} = {now['from']} -> {now['to']}: the run in '{path}' goes on with {now['to']}"
        print(printable(said), file=sys.stderr)
    return now is not None


def _steps(path: Path) -> str:
    """Return the steps of a folder's config as they are written; empty if it cannot be read."""
    try:
        return _lines((path / CONFIG).read_text(encoding="utf-8")).get(STEPS, "")
    except (OSError, UnicodeDecodeError):
        return ""


def _sign(path: Path, config: Config) -> None:
    """Write whose folder this is; `run.json` last, since it says that the rest is there."""
    write_whole(path / CONFIG, dump(config))
    _identify(path, config, {})


def _identify(path: Path, config: Config, more: dict[str, Any]) -> None:
    mine = {"config_id": config_id(config), "run_id": run_id(config)}
    write_whole(path / IDENTITY, json.dumps(mine | more, indent=2) + "\n")


def _has_begun(path: Path) -> bool:
    """Tell whether a run has recorded or saved anything; one that was refused at its start has not."""
    return any(path.glob(f"{CHECKPOINTS}/steps/*")) or any(file.stat().st_size for file in _kept(path))


def _kept(path: Path) -> list[Path]:
    """Return the files to which a run appends, its plugins' included."""
    return [*path.glob("*.jsonl"), *path.glob("*.bin")]


def _forget(path: Path) -> None:
    """Remove what a run writes before its first step, so that another one may have the folder."""
    shutil.rmtree(path / "tokenizer", ignore_errors=True)
    for name in (CONFIG, PATHS, CODE, ENVIRONMENT, SOURCES, MEMORY, IDENTITY):  # this one last, if it is killed
        (path / name).unlink(missing_ok=True)


def _see_that_utf8(path: Path) -> None:
    """Refuse a path of other bytes, into which orbax cannot write: the first checkpoint would fail."""
    place = path.absolute()
    try:
        str(place).encode()
    except UnicodeEncodeError as error:
        raise RunError(f"run folder '{place}' cannot be written: its path is not UTF-8; choose another") from error


def _see_that_own(path: Path) -> None:
    """Refuse links in the place of files that a run appends to and cuts: a stranger's may lead to any file."""
    if links := [name for name in (LOCK, MESSAGES, *FILES) if (path / name).is_symlink()]:
        raise RunError(
            f"run folder '{path}' has a link {links[0]} -> '{(path / links[0]).readlink()}', and a run writes into"
            " files of its own only; put the file in its place"
        )


def _see_that_whole(path: Path) -> None:
    """Refuse a run whose checkpoints are gone: it would begin again and overwrite its records."""
    if not (path / CHECKPOINTS).exists() and (lost := _records(path)):
        raise RunError(
            f"run folder '{path}' has a file {lost} but no folder {CHECKPOINTS}, and the run would begin again and"
            " overwrite it; put the checkpoints back, or choose another --folder"
        )


def _see_that_new(path: Path, text: str) -> None:
    """Refuse a folder whose files a new run would overwrite or cut; a start that was killed has left its own config."""
    config = path / CONFIG
    overwritten = config.exists() and config.read_bytes() != text.encode()
    if found := CONFIG if overwritten else _records(path):
        raise RunError(
            f"folder '{path}' has a file {found} but no {IDENTITY}, so it is not the folder of a run, and a run in it"
            " would overwrite that file; choose another --folder"
        )


def _records(path: Path) -> str | None:
    """Return the name of a file of records that is not empty."""
    return next((name for name in FILES if (path / name).exists() and (path / name).stat().st_size), None)


def _what_differs(path: Path, config: Config) -> str:
    """Compare the texts of the configs, since to resolve the folder's would be to run the programs that it names."""
    try:
        theirs, mine = _lines((path / CONFIG).read_text(encoding="utf-8")), _lines(dump(config))
    except (OSError, UnicodeDecodeError) as error:
        return f"its config cannot be read ({error})"
    keys = dict.fromkeys((*theirs, *mine))
    pairs = [(key, theirs.get(key, "(none)"), mine.get(key, "(none)")) for key in keys]
    lines = [f"{key} = {before} -> {after}" for key, before, after in pairs if before != after]
    shown = "; ".join(lines[:SHOWN_DIFFERENCES])
    more = f"; and {len(lines) - SHOWN_DIFFERENCES} more" if len(lines) > SHOWN_DIFFERENCES else ""
    return shown + more if lines else "the configs are equal, but the versions of the plugins differ"


def _lines(text: str) -> dict[str, str]:
    """Return the values of a dumped config, as they are written."""
    pairs = (line.partition(" = ") for line in text.splitlines() if not line.startswith("#"))
    return {key: value for key, _, value in pairs if value}


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def plugins() -> dict[str, str]:
    """Return the versions of the plugins by their distributions."""
    return {c.origin.distribution: c.origin.version for c in current().components()}


def libraries() -> dict[str, str]:
    """Return the versions of the numerical libraries that are installed."""
    return {name: version for name in LIBRARIES if (version := _version(name))}


def _note_environment(path: Path) -> None:
    """Append a record of this start: command, machine, devices, versions of the plugins and numerical libraries."""
    there = devices()
    start = {
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "command": sys.argv,
        "folder": os.getcwd(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "plugins": plugins(),
        "libraries": libraries(),
        "backend": there[0].platform,
        "devices": dict(Counter(device.device_kind for device in there)),
    }
    file = path / ENVIRONMENT
    try:
        starts = [*json.loads(file.read_text())] if file.exists() else []
    except (ValueError, TypeError, RecursionError) as error:
        raise RunError(f"'{file}' is not a list in JSON: {error}; restore it, or move it away") from error
    write_whole(file, json.dumps([*starts, start], indent=2) + "\n")
