"""The record that a distribution has passed every check, kept in the user's cache folder. Imports nothing heavy."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import time
from importlib import metadata
from pathlib import Path
from typing import Literal

import attrs
from packaging.utils import canonicalize_name

from dovetail.errors import PluginError
from dovetail.registry.compatibility import engine_version
from dovetail.registry.discovery import GROUP
from dovetail.run.files import write_whole

State = Literal["current", "stale", "none"]


@attrs.frozen(kw_only=True)
class Record:
    """A complete run without failures.

    Attributes:
        distribution: the distribution that was checked.
        version: its version at the time.
        files: hash of the files of its packages at the time.
        dovetail: the version of Dovetail that the checks came with.
        checks: how many passed.
        skipped: how many could not be carried out.
        known: how many failed as declared.
        date: when, in UTC.
    """

    distribution: str
    version: str
    files: str
    dovetail: str
    checks: int
    skipped: int
    known: int
    date: str


@attrs.frozen
class Stamp:
    """The state of a distribution's record: `current`, `stale` with the reason, or `none`."""

    state: State
    record: Record | None = None
    reason: str = ""

    def __str__(self) -> str:
        if self.record is None:
            return "not checked"
        passed = f"{self.record.checks} checks passed on {self.record.date[:10]}"
        return passed if self.state == "current" else f"{passed}, but since then {self.reason}"


def read(distribution: str) -> Stamp:
    """Return the state of an installed distribution's conformance record.

    Raises:
        PluginError: if it has a record, but is not installed.
    """
    try:
        record = Record(**json.loads(path(distribution).read_text()))
    except (OSError, ValueError, TypeError):  # there is none yet, or another program wrote it
        return Stamp("none")
    changes = {
        f"its version changed from {record.version}": record.version != _installed(distribution).version,
        f"dovetail changed from {record.dovetail}": record.dovetail != engine_version(),
        "its files changed": record.files != hash_of(distribution),
    }
    reasons = [reason for reason, changed in changes.items() if changed]
    return Stamp("stale", record, " and ".join(reasons)) if reasons else Stamp("current", record)


def write(distribution: str, *, checks: int, skipped: int, known: int) -> Record:
    """Record a complete run without failures."""
    record = Record(
        distribution=distribution,
        version=_installed(distribution).version,
        files=hash_of(distribution),
        dovetail=engine_version(),
        checks=checks,
        skipped=skipped,
        known=known,
        date=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    )
    place = path(distribution)
    place.parent.mkdir(parents=True, exist_ok=True)
    write_whole(place, json.dumps(attrs.asdict(record), indent=2) + "\n")
    return record


def forget(distribution: str) -> None:
    """Remove the record of a distribution that has failed a check."""
    path(distribution).unlink(missing_ok=True)


def path(distribution: str) -> Path:
    """Return where the record is kept."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "dovetail" / "conformance" / f"{canonicalize_name(distribution)}.json"


def hash_of(distribution: str) -> str:
    """Return a hash of the Python files in the packages that a distribution announces; nothing is imported.

    Raises:
        PluginError: if it is not installed.
    """
    points = _installed(distribution).entry_points.select(group=GROUP)
    digest = hashlib.sha256()
    for package in sorted({point.module.partition(".")[0] for point in points}):
        for file in _files(package):
            digest.update(f"{package}/{file.name}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def _installed(distribution: str) -> metadata.Distribution:
    try:
        return metadata.distribution(distribution)
    except metadata.PackageNotFoundError:
        raise PluginError(f"no distribution '{distribution}' is installed") from None


def _files(package: str) -> list[Path]:
    spec = importlib.util.find_spec(package)
    if spec is None:
        return []
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
    single = [Path(spec.origin)] if spec.origin and not folders else []
    return single + sorted(file for folder in folders for file in folder.rglob("*.py"))
