"""Small model folders for tests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from dovetail_model.huggingface.safetensors import open_folder, write_folder

FIXTURES = Path(__file__).parents[1] / "fixtures" / "models"
ARCHITECTURES = (
    "gemma2",
    "gemma3",
    "gemma3_text",
    "granite",
    "llama",
    "mistral",
    "olmo2",
    "olmo3",
    "phi3",
    "qwen2",
    "qwen2_yarn",
    "qwen3",
    "qwen3_moe",
    "smollm3",
)


@attrs.frozen(eq=False)
class Given:
    """An array at hand."""

    array: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.array.dtype

    def read(self) -> np.ndarray:
        return self.array


def arrays_of(folder: Path) -> dict[str, np.ndarray]:
    """Read all tensors of a folder."""
    return {name: np.array(tensor.read()) for name, tensor in open_folder(folder).items()}


def write(
    folder: Path, arrays: Mapping[str, np.ndarray], config: Mapping[str, Any], *, shard_bytes: int = 1 << 30
) -> Path:
    """Write a folder with these tensors and this config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    write_folder(folder, {name: Given(array) for name, array in arrays.items()}, shard_bytes=shard_bytes)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def config_of(architecture: str) -> dict[str, Any]:
    """Read the config.json of a fixture."""
    return json.loads((FIXTURES / architecture / "config.json").read_text())
