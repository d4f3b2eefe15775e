"""Presents the model in a GGUF file as a Hugging Face folder."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, lru_cache
from pathlib import Path

import attrs

from dovetail.errors import ConfigError
from dovetail_model.huggingface.config import HuggingFaceConfig
from dovetail_model.huggingface.safetensors import Readable
from dovetail_model.source.gguf.config import config_values
from dovetail_model.source.gguf.file import GgufFile, open_gguf
from dovetail_model.source.gguf.tensors import hf_tensors
from dovetail_model.source.gguf.tokenizer import tokenizer_files


@attrs.define(slots=False)
class GgufModel:
    """The contents of a GGUF file in the format of a Hugging Face folder; see `Source`."""

    file: GgufFile
    settings: str = attrs.field(default="its metadata", init=False)

    @property
    def name(self) -> str:
        """The path."""
        return str(self.file.path)

    def known(self) -> HuggingFaceConfig:
        """Return the equivalent `config.json`."""
        return self.config()

    def config(self) -> HuggingFaceConfig:
        """Return the equivalent `config.json`."""
        return HuggingFaceConfig(self.file.path, config_values(self.file))

    def tensors(self) -> Mapping[str, Readable]:
        """Return its tensors, which are dequantised as they are read."""
        return hf_tensors(self.file, config_values(self.file))

    def text(self, name: str) -> bytes | None:
        """Return a file of its tokenizer."""
        return self._texts.get(name)

    def copy_texts(self, to: Path) -> None:
        """Write the files of its tokenizer."""
        for name, data in self._texts.items():
            (to / name).write_bytes(data)

    @cached_property
    def _texts(self) -> Mapping[str, bytes]:
        return tokenizer_files(self.file)


def open_model(path: Path) -> GgufModel:
    """Open a file; a file that has not changed since the last call is not read again.

    Raises:
        ConfigError: if the file does not exist, or is not a readable GGUF file.
    """
    try:
        state = path.stat()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from error
    return _open(path, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=2)
def _open(path: Path, _changed: int, _size: int) -> GgufModel:
    return GgufModel(open_gguf(path))
