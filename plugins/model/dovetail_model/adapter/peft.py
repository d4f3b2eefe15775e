"""A low-rank change that was trained before, by PEFT or by an exported run."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import attrs
import jax.numpy as jnp
from annotated_types import Ge, Lt
from flax import nnx

from dovetail import STATIC
from dovetail.errors import ConfigError, listing
from dovetail.registry import declares
from dovetail.run.sources import stands_for
from dovetail_model.adapter.lora import linears
from dovetail_model.huggingface.config import read_object
from dovetail_model.huggingface.safetensors import Tensor, open_file
from dovetail_model.huggingface.tower import moved
from dovetail_model.layers.linear import Linear, Matrix
from dovetail_model.layers.quantised import Format
from dovetail_model.source.hub import HubName, download
from dovetail_model.transformer import decoder_of

CONFIG: Final = "adapter_config.json"
WEIGHTS: Final = "adapter_model.safetensors"

_NEUTRAL: Final[Mapping[str, tuple[Any, ...]]] = {
    "peft_type": ("LORA",),
    "bias": ("none",),
    "fan_in_fan_out": (False,),
    "lora_bias": (False,),
    "modules_to_save": (None, []),
    "trainable_token_indices": (None, []),
    "use_dora": (False,),
    # the others change the weights of the base too
    "init_lora_weights": (True, False, "gaussian", "eva", "orthogonal"),
}
"""What a file may say of these settings: what it has with other values is not only a low-rank change of matrices."""


@declares(loaded=True, files=("path",))
@attrs.frozen(kw_only=True)
class Peft:
    """Goes on training a low-rank change that was trained before, such as the adapter of a supervised warm start.

        y = x W + s (x A) B          s = α/r, or α/√r with `use_rslora`

    `path` is what `save_pretrained` of the PEFT library writes, or `dovetail export --adapter`: which matrices have a
    change, its rank and α stand there. The policy begins with the change, and so does its reference, which shares the
    model's weights. A run that is resumed needs the same file.

    Args:
        path: a folder with `adapter_config.json` and `adapter_model.safetensors`, or its name on the Hugging Face hub,
            `OWNER/NAME` or `OWNER/NAME@REVISION`.
        quantise_base: the format of the adapted matrices; None leaves them unquantised.
        dropout: the fraction of the inputs of A that are set to zero in training, whatever it was before; see `lora`.

    Raises:
        ConfigError: if there is no such adapter, it has been changed since the run began, does more than a low-rank
            change of matrices, as DoRA does, or is of another model; the message lists the names.
    """

    path: str
    quantise_base: Format | None = None
    dropout: Annotated[float, Ge(0), Lt(1), STATIC] = 0.0

    def apply(self, model: nnx.Module, *, rngs: nnx.Rngs) -> nnx.Module:
        """Return the model with the changes of the file on the matrices that it names."""
        folder = _folder(self.path)
        config = _read_config(folder / CONFIG)
        stored = _pairs(folder / WEIGHTS)
        there = linears(model)
        tower = decoder_of(model).spec.tower
        layouts = tower.layouts if tower else ({},)
        found = {name: next((at for at in map(partial(moved, name), layouts) if at in stored), None) for name in there}
        if strange := stored.keys() - set(found.values()):
            raise ConfigError(
                f"{folder / WEIGHTS}: has changes of {_shown(strange)}, which are not matrices of the model; there are"
                f" {_shown(set(there))}, where N is the layer"
            )
        adapted = [(there[name], at) for name, at in found.items() if at is not None]
        for number, (matrix, at) in enumerate(adapted):
            self._adapt(matrix, at, number, stored[at], config, rngs)
        return model

    def _adapt(
        self, matrix: Matrix, name: str, number: int, pair: tuple[Tensor, Tensor], config: Mapping[str, Any], rngs: Any
    ) -> None:
        if not isinstance(matrix, Linear):
            raise ConfigError(f"{self.path}: changes {name}, which are experts; only single matrices are supported")
        a, b = pair
        rank = b.shape[-1]
        if (a.shape, b.shape) != ((rank, matrix.inputs), (matrix.outputs, rank)):
            raise ConfigError(
                f"{self.path}: of {name}, A is {list(a.shape)} and B {list(b.shape)}, where [r, {matrix.inputs}] and"
                f" [{matrix.outputs}, r] fit the model; it was trained on another one"
            )
        scale = _alpha(config, name) / (rank**0.5 if config.get("use_rslora") else rank)
        # as in `lora`: without dropout the number does not matter, and equal layers are traced only once
        own = number if self.dropout else 0
        matrix.adapt(rank, scale=scale, dropout=self.dropout, number=own, rngs=rngs)
        assert matrix.change is not None
        for leaf, tensor in ((matrix.change.a, a), (matrix.change.b, b)):
            leaf[...] = jnp.asarray(tensor.read().T, jnp.float32)
        if self.quantise_base is not None:
            matrix.quantise(self.quantise_base)


def _folder(path: str) -> Path:
    """Return the folder of an adapter, downloaded if its name is one on the hub."""
    here = Path(path).expanduser()
    name = None if here.exists() else HubName.parse(path)
    folder = here if name is None else download(name, [CONFIG, WEIGHTS])
    for file in (CONFIG, WEIGHTS):
        if not (folder / file).is_file():
            what = f"has no {file}" if name or folder.is_dir() else "is not a folder"
            raise ConfigError(
                f"adapter.peft.path = '{path}': {what}; an adapter is a folder with {CONFIG} and {WEIGHTS}, or"
                " OWNER/NAME on the Hugging Face hub"
            )
    if name is None:
        # the reference of a resumed run is made of this file again
        digest = hashlib.sha256((folder / WEIGHTS).read_bytes()).hexdigest()
        if stands_for(f"adapter {path}", lambda: digest) != digest:
            raise ConfigError(f"{folder / WEIGHTS}: is not the file that the run began with")
    return folder


def _read_config(file: Path) -> dict[str, Any]:
    config = read_object(file)
    for name, allowed in _NEUTRAL.items():
        if name in config and config[name] not in allowed:
            raise ConfigError(
                f"{file}: {name} = {config[name]!r}; only low-rank changes of matrices are read, which have"
                f" {' or '.join(map(repr, allowed))}. With PEFT, `merge_and_unload` makes a whole model of it"
            )
    return config


def _pairs(file: Path) -> dict[str, tuple[Tensor, Tensor]]:
    """Return A, [rank, inputs], and B, [outputs, rank], of each module."""
    tensors = open_file(file)
    pairs = {}
    for key in tensors:
        name, factor, _ = key.partition(".lora_A.")
        other = key.replace(".lora_A.", ".lora_B.")
        if factor and other in tensors:
            pairs[name.removeprefix("base_model.model.")] = (tensors[key], tensors[other])
    if 2 * len(pairs) != len(tensors) or not pairs:
        alone = {key for key in tensors if not re.search(r"\.lora_[AB]\.", key)} or tensors.keys()
        raise ConfigError(f"{file}: is not made of pairs of lora_A and lora_B; there are {_shown(alone)}")
    return pairs


def _alpha(config: Mapping[str, Any], module: str) -> float:
    """Return α of a module, of which `alpha_pattern` may say another one; its names are expressions, as PEFT has them.

    >>> _alpha({"lora_alpha": 8, "alpha_pattern": {"q_proj": 4}}, "model.layers.0.self_attn.q_proj")
    4.0
    """
    patterns = config.get("alpha_pattern") or {}
    return float(
        next(
            (alpha for name, alpha in patterns.items() if re.fullmatch(rf"(.*\.)?({name})", module)),
            config.get("lora_alpha", 8),
        )
    )


def _shown(names: Iterable[str]) -> str:
    return listing({re.sub(r"\d+", "N", name) for name in names})
