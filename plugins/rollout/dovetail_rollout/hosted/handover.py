"""Hands weights over to a host: a folder for each version, in memory if the machine has a file system for that."""

from __future__ import annotations

import fcntl
import json
import shutil
import tempfile
import weakref
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final

import attrs
from flax import nnx

from dovetail.errors import ConfigError, RunError
from dovetail.protocols import ModelMaker, Weights

MEMORY: Final = Path("/dev/shm")
"""Where Linux keeps files in memory."""
PREFIX: Final = "dovetail-weights-"
LOCK: Final = "lock"


def _close_later(self: Handover) -> Any:
    return weakref.finalize(self, _remove, self.root, self.lock)


def _remove(root: Path, lock: IO[bytes]) -> None:
    shutil.rmtree(root, ignore_errors=True)
    lock.close()


@attrs.frozen(eq=False)
class Handover:
    """Writes each version of a policy's weights to a folder under `root`, which is removed together with this object.

    What a killed process has left is removed by the next one, since nobody holds its `lock`, an open file, any more.

    Args:
        root: the parent of the folders.
        lock: held as long as `root` is in use.
        maker: writes its models to folders.
        graphdef: the structure of the policy.
        adapter: whether to write only the adapter.
    """

    root: Path
    lock: IO[bytes] = attrs.field(repr=False)
    maker: ModelMaker
    graphdef: Any = attrs.field(repr=False)
    adapter: bool
    close: Any = attrs.field(init=False, repr=False, default=attrs.Factory(_close_later, takes_self=True))

    @classmethod
    def open(cls, where: str | None, maker: ModelMaker, graphdef: Any, *, adapter: bool) -> Handover:
        """Make a folder in `where`; None is one in memory, or in the system's folder for temporary files.

        Raises:
            ConfigError: if that is not possible.
        """
        root, lock = claim(where)
        return cls(root=root, lock=lock, maker=maker, graphdef=graphdef, adapter=adapter)

    def write(self, weights: Weights, version: int) -> Path:
        """Write weights and return their folder.

        Raises:
            ConfigError: if the maker cannot write this model.
            RunError: if there is not enough room.
        """
        folder = self.root / f"version-{version}"
        model = nnx.merge(self.graphdef, *weights)
        try:
            shutil.rmtree(folder, ignore_errors=True)
            self.maker.export(model, folder, adapter=self.adapter)
        except OSError as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise RunError(f"the weights of version {version} cannot be written to {folder}: {error}") from error
        return folder

    def keep(self, folder: Path) -> None:
        """Remove all versions except the one in this folder."""
        for other in self.root.glob("version-*"):
            if other != folder:
                shutil.rmtree(other, ignore_errors=True)


def claim(where: str | None) -> tuple[Path, IO[bytes]]:
    """Make a folder for weights in `where`; None is in memory. Return it with its lock, held as long as it is in use.

    Raises:
        ConfigError: if that is not possible.
    """
    place = Path(where).expanduser() if where else MEMORY if MEMORY.is_dir() else Path(tempfile.gettempdir())
    try:
        _remove_abandoned(place)
        root = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
        return root, _locked(root / LOCK)
    except OSError as error:
        raise ConfigError(f"handover = {where!r}: weights cannot be written there: {error}") from error


def _locked(file: Path) -> IO[bytes]:
    """Make a file that is locked from the moment others can see it under this name."""
    aside = file.with_suffix(".new")
    lock = aside.open("wb")
    fcntl.flock(lock, fcntl.LOCK_EX)
    aside.rename(file)
    return lock


def _remove_abandoned(place: Path) -> None:
    """Remove folders whose lock nobody holds."""
    for file in place.glob(f"{PREFIX}*/{LOCK}"):
        with suppress(OSError), file.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(file.parent, ignore_errors=True)


def adapted(folder: Path) -> Mapping[str, Any] | None:
    """Return the configuration of the adapter in a folder, or None if there is none.

    Its `base_model_name_or_path` is the folder of the model, its `r` the rank.
    """
    file = folder / "adapter_config.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None


def dtype_of(folder: Path) -> str:
    """Return the type of the weights in a folder, or of the model that an adapter there is for.

    By default programs compute with half that precision.
    """
    adapter = adapted(folder)
    base = folder if adapter is None else Path(adapter["base_model_name_or_path"])
    config = json.loads((base / "config.json").read_text(encoding="utf-8"))
    return str(config.get("dtype") or config.get("torch_dtype") or "auto")
