"""A Hugging Face folder on disk."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs

from dovetail_model.huggingface.config import HuggingFaceConfig
from dovetail_model.huggingface.safetensors import Readable, open_folder

TEXTS: Final = (
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template*",
    "generation_config.json",
)
"""The files of a model's folder that do not depend on its weights, except `config.json`."""


@attrs.frozen
class Folder:
    """A folder as written by `save_pretrained` or downloaded; see `Source`."""

    path: Path
    settings: str = attrs.field(default="config.json", init=False)

    @property
    def name(self) -> str:
        """The path."""
        return str(self.path)

    def known(self) -> HuggingFaceConfig:
        """Return its `config.json` or, if there is no folder, the known settings of a model of that name."""
        published = None if self.path.exists() else HuggingFaceConfig.known(self.path.name)
        return published or self.config()

    def config(self) -> HuggingFaceConfig:
        """Return its `config.json`."""
        return HuggingFaceConfig.read(self.path)

    def tensors(self) -> Mapping[str, Readable]:
        """Return its tensors."""
        return open_folder(self.path)

    def text(self, name: str) -> bytes | None:
        """Return a file's content."""
        file = self.path / name
        return file.read_bytes() if file.is_file() else None

    def copy_texts(self, to: Path) -> None:
        """Copy the files that do not depend on the weights."""
        if self.path.resolve() == to.resolve():
            return
        for file in sorted({file for pattern in TEXTS for file in self.path.glob(pattern) if file.is_file()}):
            shutil.copyfile(file, to / file.name)
