"""What the sinks of experiment trackers share: the description of a run, and the steps that a tracker already has."""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import ModuleType

import attrs

from dovetail.errors import ConfigError
from dovetail.extras import needs
from dovetail.protocols import Sink
from dovetail.run.files import read_json, write_whole
from dovetail_sink._figures import phase_of


@attrs.frozen(kw_only=True)
class Tracked:
    """The description of a run.

    Attributes:
        name: the folder's name.
        key: a unique key of the run, which does not change when the run is resumed or extended.
        group: the name of its sweep's folder; None for a single run.
        sweep: the sweep's folder.
        settings: its config, key -> value as text.
    """

    name: str
    key: str
    group: str | None
    sweep: Path | None
    settings: Mapping[str, str]

    @classmethod
    def of(cls, folder: Path) -> Tracked:
        """Read a run's folder, as far as there is something in it."""
        folder = folder.absolute()
        sweep = folder.parent.parent  # of a folder below the root, the root
        in_sweep = folder.parent.name == "trials" and (sweep / "sweep.json").exists()
        identity = folder / "run.json"
        found = json.loads(identity.read_text()) if identity.exists() else {}
        first = next(iter(found.get("extended", ())), found)
        return cls(
            name=folder.name,
            key=f"{first.get('run_id', 'run')}-{hashlib.sha256(str(folder).encode()).hexdigest()[:8]}",
            group=sweep.name if in_sweep else None,
            sweep=sweep if in_sweep else None,
            settings=_settings(folder / "config.gin"),
        )


def _settings(path: Path) -> dict[str, str]:
    lines = path.read_text().splitlines() if path.exists() else []
    pairs = (line.partition(" = ") for line in lines if " = " in line and not line.startswith("#"))
    return {key: value for key, _, value in pairs}


def import_tracker(sink: str, module: str, library: str) -> ModuleType:
    """Import the library of a sink.

    Raises:
        ConfigError: if it is not installed; the message has the command that installs it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(needs(f"sink '{sink}'", library, sink) + f" ({error})") from error


def named(metrics: Mapping[str, float]) -> tuple[bool, dict[str, float]]:
    """Return whether a record belongs to the warm start, and its metrics, whose names then begin with `sft/`.

    The warm start counts its steps separately, so its `time/step` must not be in the same curve as that of RL steps.

    >>> named({"sft/loss": 2.0, "time/step": 1.0})
    (True, {'sft/loss': 2.0, 'sft/time/step': 1.0})
    """
    is_sft = phase_of(metrics) == "sft"
    return is_sft, {f"sft/{name.removeprefix('sft/')}" if is_sft else name: each for name, each in metrics.items()}


@attrs.define
class Once:
    """An open sink that hands each step to its tracker once.

    The steps between the last checkpoint and a crash are done again, and no tracker lets a record be replaced: a curve
    would go back in time. So the last step of each phase is kept in a file of the run's folder.

    Attributes:
        sink: what writes to the tracker.
        path: the file.
        key: the run's, as in `Tracked`; what was noted of another run in the same folder does not count.
        last: phase -> the last step that the tracker has.
    """

    sink: Sink
    path: Path
    key: str
    last: dict[str, int]

    @classmethod
    def over(cls, sink: Sink, name: str, folder: Path, key: str) -> Once:
        """Wrap a tracker's sink; a note that is damaged is ignored, since a repeated step is better than a lost run."""
        path = folder / f"{name}.sent.json"
        last: dict[str, int] = {}
        with suppress(OSError, ValueError):
            found = read_json(path)
            if isinstance(found, dict) and found.get("key") == key:
                last = {phase: step for phase, step in found.items() if isinstance(step, int)}
        return cls(sink, path, key, last)

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Take one step's metrics, unless the tracker has them."""
        phase = phase_of(metrics)
        if step <= self.last.get(phase, -1):
            return
        self.sink.write(step, metrics)
        self.last[phase] = step
        write_whole(self.path, json.dumps({"key": self.key, **self.last}))

    def close(self) -> None:
        """Close the tracker's sink."""
        self.sink.close()
