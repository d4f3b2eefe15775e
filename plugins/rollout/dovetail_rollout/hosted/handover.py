"""Hands weights over to a host: a folder for each version, in memory if the machine has a file system for that."""

from __future__ import annotations

import json
import shutil
import tempfile
import warnings
import weakref
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final

import attrs
import jax
import jax.numpy as jnp
from flax import nnx

from dovetail.errors import ConfigError, DovetailWarning, RunError
from dovetail.progress import in_bytes
from dovetail.protocols import ModelMaker, Weights
from dovetail.run.files import hold

MEMORY: Final = Path("/dev/shm")
"""Where Linux keeps files in memory."""
PREFIX: Final = "dovetail-weights-"
LOCK: Final = "lock"
COMPUTED_IN: Final = "computed_in"
"""The file with the type that the policy computes in, which may differ from that of its weights."""
VERSIONS: Final = 2
"""Folders that exist at a time: the new weights are written while a host still has the old ones."""


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
    def open(
        cls, where: str | None, maker: ModelMaker, graphdef: Any, *, adapter: bool, weights: Weights | None = None
    ) -> Handover:
        """Make a folder in `where`; None is one in memory if `weights` fit there, or else among temporary files.

        Raises:
            ConfigError: if that is not possible.
        """
        written = weights.trained if weights and adapter else weights
        root, lock = claim(where, VERSIONS * sum(leaf.nbytes for leaf in jax.tree.leaves(written)))
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
            (folder / COMPUTED_IN).write_text(_computed_in(self.graphdef, weights), encoding="utf-8")
        except OSError as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise RunError(f"the weights of version {version} cannot be written to {folder}: {error}") from error
        return folder

    def keep(self, *folders: Path) -> None:
        """Remove all versions except those in these folders."""
        for other in self.root.glob("version-*"):
            if other not in folders:
                shutil.rmtree(other, ignore_errors=True)


def claim(where: str | None, size: int = 0) -> tuple[Path, IO[bytes]]:
    """Make a folder for `size` bytes of weights in `where`; None is in memory if there is room, or else temporary.

    Returns:
        The folder, and its lock, which is held as long as the folder is in use.

    Raises:
        ConfigError: if that is not possible, or there is not enough room.
    """
    place = Path(where).expanduser() if where else _default_place(size)
    try:
        _remove_abandoned(place)
        if (free := shutil.disk_usage(place).free) < size:
            raise ConfigError(
                f"handover = {where!r}: weights that are handed over to the engine take {in_bytes(size)}, and {place}"
                f" has {in_bytes(free)} free; make room there, or name a folder with more"
            )
        root = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
        return root, _locked(root / LOCK)
    except OSError as error:
        raise ConfigError(f"handover = {where!r}: weights cannot be written there: {error}") from error


def _default_place(size: int) -> Path:
    temporary = Path(tempfile.gettempdir())
    if not MEMORY.is_dir():
        return temporary
    free = shutil.disk_usage(MEMORY).free
    if free >= size:
        return MEMORY
    # containers have 64 MiB there by default
    warnings.warn(
        f"{MEMORY} has {in_bytes(free)} free, and weights that are handed over to the engine take {in_bytes(size)}:"
        f" they are written to {temporary}, which is slower",
        DovetailWarning,
        stacklevel=2,
    )
    return temporary


def _computed_in(graphdef: Any, weights: Weights) -> str:
    """Return the type of a model's hidden states, which is the one that it computes in."""

    def hidden(weights: Weights) -> Any:
        model: Any = nnx.merge(graphdef, *weights)
        return model(jnp.zeros((1, 1), jnp.int32), jnp.ones((1, 1), bool))[0]

    return str(jax.eval_shape(hidden, weights).dtype)


def _locked(file: Path) -> IO[bytes]:
    """Make a file that is locked from the moment others can see it under this name."""
    aside = file.with_suffix(".new")
    lock = hold(aside, f"the folder '{file.parent}'")
    aside.rename(file)
    return lock


def _remove_abandoned(place: Path) -> None:
    """Remove folders whose lock nobody holds."""
    for file in place.glob(f"{PREFIX}*/{LOCK}"):
        with suppress(OSError, RunError), hold(file, f"the folder '{file.parent}'"):
            shutil.rmtree(file.parent, ignore_errors=True)


def adapted(folder: Path) -> Mapping[str, Any] | None:
    """Return the configuration of the adapter in a folder, or None if there is none.

    Its `base_model_name_or_path` is the folder of the model, its `r` the rank.

    Raises:
        ConfigError: if it is a DoRA adapter, which vLLM refuses, and no other host takes adapters.
    """
    file = folder / "adapter_config.json"
    if not file.is_file():
        return None
    config = json.loads(file.read_text(encoding="utf-8"))
    if config.get("use_dora"):
        raise ConfigError(
            "vLLM reads no DoRA adapter (adapter.lora.weight_decomposed, or use_dora of a file); set"
            " rollout.vllm.adapter = False, and it gets the weights with the adapter merged"
        )
    return config


def config_of(folder: Path) -> Mapping[str, Any]:
    """Return the `config.json` of a folder, or of the model that its adapter is for."""
    adapter = adapted(folder)
    base = folder if adapter is None else Path(adapter["base_model_name_or_path"])
    return json.loads((base / "config.json").read_text(encoding="utf-8"))


def dtype_of(folder: Path) -> str:
    """Return the type that a host should compute in with the model of a folder: as the policy does.

    For a folder that nobody here has written it is the type of its weights, or of the model that an adapter is for.
    """
    if (folder / COMPUTED_IN).is_file():
        return (folder / COMPUTED_IN).read_text(encoding="utf-8")
    config = config_of(folder)
    return str(config.get("dtype") or config.get("torch_dtype") or "auto")
