"""Weights on their way to a host: a folder for each version, in memory where the machine has a place for that."""

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
    """Writes each version of a policy's weights to a folder of its own under `root`, which goes when this does.

    What a killed process has left goes when the next one opens: its `lock`, an open file, is held no more.

    Args:
        root: where to.
        lock: is held as long as `root` is of use.
        maker: writes the folders that hold its models.
        graphdef: structure of the policy.
        adapter: write the adapter alone.
    """

    root: Path
    lock: IO[bytes] = attrs.field(repr=False)
    maker: ModelMaker
    graphdef: Any = attrs.field(repr=False)
    adapter: bool
    close: Any = attrs.field(init=False, repr=False, default=attrs.Factory(_close_later, takes_self=True))

    @classmethod
    def open(cls, where: str | None, maker: ModelMaker, graphdef: Any, *, adapter: bool) -> Handover:
        """Make a folder in `where`; None is a place in memory, or the system's place for temporary files.

        Raises:
            ConfigError: if there is no such place.
        """
        place = Path(where).expanduser() if where else MEMORY if MEMORY.is_dir() else Path(tempfile.gettempdir())
        try:
            _remove_abandoned(place)
            root = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
            lock = _locked(root / LOCK)
        except OSError as error:
            raise ConfigError(f"handover = {where!r}: weights cannot be left there: {error}") from error
        return cls(root=root, lock=lock, maker=maker, graphdef=graphdef, adapter=adapter)

    def write(self, weights: Weights, version: int) -> Path:
        """Write weights; return their folder.

        Raises:
            ConfigError: if the maker cannot write this model.
            RunError: if there is no room.
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
        """Drop all versions but the one in this folder."""
        for other in self.root.glob("version-*"):
            if other != folder:
                shutil.rmtree(other, ignore_errors=True)


def _locked(file: Path) -> IO[bytes]:
    """Make a file that is locked from the moment on that others see it under this name."""
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
    """Return what an adapter's folder says about it, or None if it holds no adapter.

    Its `base_model_name_or_path` is the folder of the model, its `r` the rank.
    """
    file = folder / "adapter_config.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None


def dtype_of(folder: Path) -> str:
    """Return the type of a folder's weights; left to themselves, programs compute in half of it."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return str(config.get("dtype") or config.get("torch_dtype") or "auto")
