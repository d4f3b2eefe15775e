"""A low-rank change that was trained before, by PEFT or by an exported run."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

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
from dovetail_model.layers.decomposed import Decomposed
from dovetail_model.layers.linear import Linear, Matrix
from dovetail_model.layers.quantised import Format
from dovetail_model.source.hub import HubName, download
from dovetail_model.transformer import decoder_of

CONFIG: Final = "adapter_config.json"
WEIGHTS: Final = "adapter_model.safetensors"
MAGNITUDE: Final = "lora_magnitude_vector"

_ALPHA: Final = 8
"""What a file without `lora_alpha` means."""
_NEUTRAL: Final[Mapping[str, tuple[Any, ...]]] = {
    "peft_type": ("LORA",),
    "bias": ("none",),
    "fan_in_fan_out": (False,),
    "lora_bias": (False,),
    "use_qalora": (False,),
    # a change that begins only after these tokens, or of layers that are there several times
    "alora_invocation_tokens": (None, []),
    "layer_replication": (None, []),
    "modules_to_save": (None, []),
    "trainable_token_indices": (None, []),
    # the others change the weights of the base too
    "init_lora_weights": (True, False, "gaussian", "eva", "orthogonal"),
}
"""What a file may say of these settings: what it has with other values is not only a low-rank change of matrices."""


@declares(loaded=True, files=("path",))
@attrs.frozen(kw_only=True)
class Peft:
    """Goes on training a low-rank change that was trained before, such as the adapter of a supervised warm start.

        y = x W + s (x A) B          s = α/r, or α/√r with `use_rslora`

    With `use_dora` the magnitudes of the outputs are trained on too, as with `weight_decomposed` of `lora`.

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
            change of matrices, or is of another model; the message lists the names.
    """

    path: str
    quantise_base: Format | None = None
    dropout: Annotated[float, Ge(0), Lt(1), STATIC] = 0.0

    @property
    def claims(self) -> Mapping[str, Any]:
        """Whether it is more than a low-rank change, as far as a folder that is here says; nothing is downloaded."""
        file = Path(self.path).expanduser() / CONFIG
        return {"beyond_low_rank": file.is_file() and bool(read_object(file).get("use_dora"))}

    def apply(self, model: nnx.Module, *, rngs: nnx.Rngs) -> nnx.Module:
        """Return the model with the changes of the file on the matrices that it names."""
        folder = _folder(self.path)
        config = _read_config(folder / CONFIG)
        stored = _changes(folder / WEIGHTS, decomposed=bool(config.get("use_dora")))
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
        self, matrix: Matrix, name: str, number: int, stored: _Change, config: Mapping[str, Any], rngs: Any
    ) -> None:
        if not isinstance(matrix, Linear):
            raise ConfigError(f"{self.path}: changes {name}, which are experts; only single matrices are supported")
        a, b, m = stored
        rank = a.shape[0] if a.shape else 0
        if not rank or (a.shape, b.shape) != ((rank, matrix.inputs), (matrix.outputs, rank)):
            raise ConfigError(
                f"{self.path}: of {name}, A is {list(a.shape)} and B {list(b.shape)}, where [r, {matrix.inputs}] and"
                f" [{matrix.outputs}, r] fit the model; it was trained on another one"
            )
        if m is not None and m.shape != (matrix.outputs,):
            raise ConfigError(
                f"{self.path}: of {name}, the magnitude is {list(m.shape)}, where [{matrix.outputs}] fits the model"
            )
        scale = _alpha(config, name) / (rank**0.5 if config.get("use_rslora") else rank)
        # as in `lora`: without dropout the number does not matter, and equal layers are traced only once
        own = number if self.dropout else 0
        matrix.adapt(rank, scale=scale, dropout=self.dropout, number=own, decomposed=m is not None, rngs=rngs)
        change = matrix.change
        assert change is not None
        for leaf, tensor in ((change.a, a), (change.b, b)):
            leaf[...] = jnp.asarray(tensor.read().T, jnp.float32)
        if self.quantise_base is not None:
            matrix.quantise(self.quantise_base)
        if m is not None:
            assert isinstance(change, Decomposed)
            change.set_magnitude(matrix.kernel, jnp.asarray(m.read(), jnp.float32))


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
    _check_alphas(file, config)
    return config


def _check_alphas(file: Path, config: Mapping[str, Any]) -> None:
    """Check what `_alpha` reads."""
    patterns = config.get("alpha_pattern") or {}
    if not isinstance(patterns, dict):
        raise ConfigError(f"{file}: alpha_pattern = {patterns!r:.80}; it must be an object: expression -> alpha")
    for name, alpha in {"lora_alpha": config.get("lora_alpha", _ALPHA), **patterns}.items():
        if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not math.isfinite(alpha) or not alpha:
            raise ConfigError(f"{file}: {name} = {alpha!r:.80}; it must be a finite number other than 0")
    for name in patterns:
        try:
            re.compile(name)
        except re.error as error:
            raise ConfigError(f"{file}: alpha_pattern: {name!r} is not a regular expression: {error}") from error


class _Change(NamedTuple):
    """The change of a module: A, [rank, inputs], B, [outputs, rank], and of a DoRA adapter m, [outputs]."""

    a: Tensor
    b: Tensor
    m: Tensor | None


def _changes(file: Path, *, decomposed: bool) -> dict[str, _Change]:
    """Return the change of each module.

    Raises:
        ConfigError: if there are other tensors; or without m although `decomposed`, or the other way round.
    """
    tensors = dict(open_file(file))
    changes = {}
    for key in [key for key in tensors if ".lora_A." in key]:
        name = key.partition(".lora_A.")[0]
        names = (key, key.replace(".lora_A.", ".lora_B."), *([f"{name}.{MAGNITUDE}"] if decomposed else []))
        if all(each in tensors for each in names):
            a, b, *m = map(tensors.pop, names)
            changes[name.removeprefix("base_model.model.")] = _Change(a, b, m[0] if m else None)
    if tensors or not changes:
        whole = "pairs of lora_A and lora_B"
        if decomposed:
            whole = f"lora_A, lora_B and {MAGNITUDE} of each module, as use_dora = True says"
        raise ConfigError(f"{file}: is not made of {whole}; there are {_shown(tensors)}")
    return changes


def _alpha(config: Mapping[str, Any], module: str) -> float:
    """Return α of a module, of which `alpha_pattern` may say another one; its names are expressions, as PEFT has them.

    >>> _alpha({"lora_alpha": 8, "alpha_pattern": {"q_proj": 4}}, "model.layers.0.self_attn.q_proj")
    4.0
    """
    patterns = config.get("alpha_pattern") or {}
    return float(
        next(
            (alpha for name, alpha in patterns.items() if re.fullmatch(rf"(.*\.)?({name})", module)),
            config.get("lora_alpha", _ALPHA),
        )
    )


def _shown(names: Iterable[str]) -> str:
    return listing({re.sub(r"\d+", "N", name) for name in names})
