"""Which replicas a run wants, and how they are: files in the run's folder, so that others can read and change them.

`fleet/wanted.json` lists the replicas by number. It says what should be and not what to do, so that reading it twice,
or after a crash, changes nothing. `fleet/status.json` is what the run last said of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

import attrs

from dovetail.errors import ConfigError
from dovetail.run.files import write_whole

FOLDER: Final = "fleet"


@attrs.frozen
class Roster:
    """The files of one run; `run` is the folder of the run that this process has begun last, if any."""

    folder: Path
    run: ClassVar[Path | None] = None

    @classmethod
    def of_run(cls) -> Roster | None:
        """Return the files of the run that goes on in this process."""
        return None if cls.run is None else cls(cls.run / FOLDER)

    def wanted(self) -> tuple[int, ...] | None:
        """Return the numbers of the replicas that should be there; None if nobody has said so.

        Raises:
            ConfigError: if the file is not a list of numbers.
        """
        file = self.folder / "wanted.json"
        if not file.is_file():
            return None
        try:
            numbers = json.loads(file.read_text(encoding="utf-8"))
            return tuple(sorted({int(number) for number in numbers}))
        except (ValueError, TypeError) as error:
            raise ConfigError(f"{file} is not a list of numbers: {error}; remove it, or mend it") from error

    def status(self) -> dict[str, Any]:
        """Return what the run has said of its replicas.

        Raises:
            ConfigError: if it has none.
        """
        file = self.folder / "status.json"
        if not file.is_file():
            raise ConfigError(
                f"{self.folder.parent} has no fleet: it is not a run with rollout.NAME.replicas above 1, or has not"
                " opened its engine yet"
            )
        return json.loads(file.read_text(encoding="utf-8"))

    def want(self, numbers: Sequence[int]) -> None:
        """Say which replicas should be there."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_whole(self.folder / "wanted.json", json.dumps(sorted(numbers)))

    def say(self, status: Mapping[str, Any]) -> None:
        """Say how they are."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_whole(self.folder / "status.json", json.dumps(status, indent=1))
