"""Measure the time and extra memory of loading a model: `python benchmarks/loading.py --gib 1 > loading.json`.

A model with random weights and the sizes of Qwen2.5-0.5B, with enough layers for the given size, is written to a
temporary folder and loaded in a process of its own. `peak_mib` is the maximum resident size of that process minus its
size before loading, with jax imported and started; it includes the pages of mapped files.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import attrs
import ml_dtypes
import numpy as np

WIDTH, FFN, VOCAB = 896, 4864, 151_936
DTYPES = {"float32": np.dtype(np.float32), "bfloat16": np.dtype(ml_dtypes.bfloat16)}


@attrs.frozen
class Random:
    """A tensor whose values are drawn when it is written."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def read(self) -> np.ndarray:
        """Return the values."""
        return np.random.default_rng(len(self.shape)).standard_normal(self.shape, np.float32).astype(self.dtype)


def write(folder: Path, gib: float, dtype: str) -> None:
    """Write a model of about `gib` GiB."""
    from flax import nnx

    from dovetail_model.huggingface.names import is_transposed, tensor_name
    from dovetail_model.huggingface.safetensors import write_folder
    from dovetail_model.model.pretrained import Pretrained

    layer = 2 * WIDTH * (WIDTH + 128) + 3 * WIDTH * FFN
    layers = max(1, round((gib * 2**30 / DTYPES[dtype].itemsize - VOCAB * WIDTH) / layer))
    config = {
        "model_type": "qwen2",
        "hidden_size": WIDTH,
        "intermediate_size": FFN,
        "num_hidden_layers": layers,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "vocab_size": VOCAB,
        "hidden_act": "silu",
        "rope_theta": 1e6,
        "tie_word_embeddings": True,
    }
    (folder / "config.json").write_text(json.dumps(config))
    model = Pretrained(path=str(folder)).abstract(None)
    tensors = {
        tensor_name(model.spec.names, path): Random(leaf.shape[:: -1 if is_transposed(path) else 1], DTYPES[dtype])
        for path, leaf in nnx.to_flat_state(nnx.state(model))
    }
    write_folder(folder, tensors, shard_bytes=300_000_000)


def load(folder: Path, dtype: str) -> dict[str, float]:
    """Load the model in this process, and return the seconds and memory that this takes."""
    import jax
    from flax import nnx

    from dovetail_model.model.pretrained import Pretrained

    jax.devices()
    before, start = _resident_mib("VmRSS"), time.perf_counter()
    model = Pretrained(path=str(folder), param_dtype=dtype).make(VOCAB, rngs=nnx.Rngs(0))  # pyright: ignore[reportArgumentType]
    seconds = time.perf_counter() - start
    parameters = sum(leaf.nbytes for leaf in jax.tree.leaves(nnx.state(model))) / 2**20
    peak = _resident_mib("VmHWM") - before
    return {"seconds": seconds, "parameters_mib": parameters, "peak_mib": peak, "beside_mib": peak - parameters}


def _resident_mib(name: str) -> float:
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) / 1024


def main() -> None:
    """Read the command line, and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, default=1.0, help="size of the stored weights")
    parser.add_argument("--stored", choices=DTYPES, default="bfloat16", help="their type")
    parser.add_argument("--param-dtype", choices=DTYPES, default="bfloat16", help="the type of the loaded weights")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)  # the child's
    options = parser.parse_args()
    if options.folder:
        print(json.dumps(load(options.folder, options.param_dtype)))
        return
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), options.gib, options.stored)
        command = [sys.executable, __file__, "--folder", folder, "--param-dtype", options.param_dtype]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    asked = {"gib": options.gib, "stored": options.stored, "param_dtype": options.param_dtype}
    print(json.dumps(asked | {name: round(value, 2) for name, value in found.items()}))


if __name__ == "__main__":
    main()
