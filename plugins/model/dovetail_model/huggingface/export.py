"""Writes a model as a Hugging Face folder, whole or as an adapter."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from dovetail.errors import ConfigError, DovetailWarning
from dovetail_model.adapter.lora import linears
from dovetail_model.adapter.peft import MAGNITUDE
from dovetail_model.huggingface.config import FILE as CONFIG
from dovetail_model.huggingface.config import HuggingFaceConfig
from dovetail_model.huggingface.experts import names_of_each
from dovetail_model.huggingface.fused import stored_together
from dovetail_model.huggingface.lookup import read_spec
from dovetail_model.huggingface.names import swapped, tensor_name
from dovetail_model.huggingface.safetensors import write_file, write_folder
from dovetail_model.huggingface.spellings import with_old_spellings
from dovetail_model.huggingface.tower import moved
from dovetail_model.layers.decomposed import Decomposed
from dovetail_model.layers.kernel import Kernel
from dovetail_model.layers.linear import Matrix, Stack
from dovetail_model.layers.low_rank import LowRank
from dovetail_model.source.source import Source
from dovetail_model.spec import DType, Spec
from dovetail_model.transformer import Transformer, decoder_of

SHARD_BYTES: Final = 5_000_000_000
LOSS: Final = 0.05
"""The greatest share of an adapter's change that may be lost in merging without a warning."""

_FREE: Final = ("dtype", "param_dtype", "remat", "attention", "init_std", "out_std", "tower")
"""What of a spec the `config.json` that is written need not say, or says otherwise."""


@attrs.frozen
class Parameter:
    """A parameter in the layout of a folder, which is copied to the host when it is read."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    make: Callable[[], jax.Array]
    transposed: bool

    @classmethod
    def of(cls, like: Any, make: Callable[[], jax.Array], *, transposed: bool) -> Parameter:
        """Return the parameter whose array `make` computes, with the shape and type of `like`."""
        shape = swapped(like.shape) if transposed else like.shape
        return cls(tuple(shape), np.dtype(like.dtype), make, transposed)

    def read(self) -> np.ndarray:
        """Return the array on the host, in the folder's layout."""
        array = np.asarray(self.make())
        return array.swapaxes(-1, -2) if self.transposed else array


def save_pretrained(
    folder: Path,
    model: nnx.Module,
    *,
    source: Source | None = None,
    shard_bytes: int = SHARD_BYTES,
    dtype: DType | None = None,
) -> list[Path]:
    """Write a folder that any program for Hugging Face models can load: `config.json` and safetensors.

    Adapters are merged, see `Matrix.merged`. A warning is logged if rounding loses more than `LOSS` of the change.
    `config.json` is written last, and that of an earlier export is removed first, because a folder without it is not
    recognised as a model: an export that is interrupted leaves no mixture of two models.

    Args:
        folder: the destination, created if necessary.
        model: the model to write.
        source: the source of the model, from which `config.json` and tokenizer files are copied; None writes the
            `config.json` of a Llama, which describes every `model.decoder`.
        shard_bytes: larger models are written to several files and an index.
        dtype: the type of all written parameters; None keeps the type that each has.

    Raises:
        ConfigError: if `source` describes another model, or is None and the model is not a Llama.
    """
    decoder = decoder_of(model)
    config = _config(source, decoder.spec, dtype or decoder.spec.param_dtype)
    _check_rounding(decoder, dtype)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CONFIG).unlink(missing_ok=True)
    files = write_folder(folder, tensors(decoder, dtype), shard_bytes=shard_bytes)
    if source is not None:
        source.copy_texts(folder)
    (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    return files


def _check_rounding(decoder: Transformer, dtype: DType | None) -> None:
    """Warn if merging loses much of the adapter: rounding to the weights' type loses changes below its spacing."""
    written = dtype or decoder.spec.param_dtype
    squares = [linear.rounding(dtype) for linear in linears(decoder).values() if linear.change is not None]
    lost, change = (sum(float(pair[i]) for pair in squares) for i in range(2))
    share = (lost / change) ** 0.5 if change else 0.0
    if share > LOSS:
        wider = "" if written == "float32" else "`dovetail export --dtype float32` keeps it, "
        warnings.warn(
            f"rounding to {written} loses {100 * share:.0f} % of the adapter's change (its norm, over all matrices);"
            f" {wider}`--adapter` writes it alone",
            DovetailWarning,
            stacklevel=3,
        )


def tensors(model: Transformer, dtype: DType | None = None) -> dict[str, Parameter]:
    """Return the tensors of this model's folder by name, with adapters merged and quantised matrices made dense.

    They have the type `dtype`, or their own if it is None.
    """
    products = {path: module for path, module in nnx.iter_modules(model) if isinstance(module, Matrix)}
    found: dict[str, Parameter] = {}
    for path, product in products.items():
        name = tensor_name(model.spec.names, (*path, "kernel"))
        found |= {
            each: Parameter.of(jax.eval_shape(make), make, transposed=True)
            for each, make in _merged(name, product, dtype)
        }
    for path, leaf in nnx.to_flat_state(nnx.state(model)):
        inside_linear = any(path[:length] in products for length in range(len(path)))
        if not inside_linear or path[-1] == "bias":
            make = partial(_cast, leaf, dtype)
            found[tensor_name(model.spec.names, path)] = Parameter.of(jax.eval_shape(make), make, transposed=False)
    for whole, parts in stored_together(model.spec):
        found[whole] = _together([found.pop(part) for part in parts])
    return found


def _merged(name: str, product: Matrix, dtype: DType | None) -> Iterator[tuple[str, Callable[[], jax.Array]]]:
    """Yield the name and the maker of each tensor of a matrix; a stack of experts has one for each expert."""
    if not isinstance(product, Stack):
        yield name, partial(product.merged, dtype)
        return
    for number, each in enumerate(names_of_each(name, product.shape[0])):
        yield each, partial(product.of_group, number, dtype)


def _together(parts: list[Parameter]) -> Parameter:
    """Return one parameter that stacks the rows of several; their matrices are stored transposed."""

    def make() -> jax.Array:
        return jnp.concatenate([part.make() for part in parts], axis=-1)

    return Parameter.of(jax.eval_shape(make), make, transposed=True)


def _cast(leaf: Any, dtype: DType | None) -> jax.Array:
    return leaf.get_value() if dtype is None else leaf.get_value().astype(dtype)


def save_adapter(folder: Path, model: nnx.Module, *, base: str) -> list[Path]:
    """Write only the adapter, in PEFT's format: `adapter_config.json` and `adapter_model.safetensors`.

    `base` names the adapted model: a folder, or its name on the hub.

    Raises:
        ConfigError: if the model has no adapter, its folder fuses adapted matrices, or experts are adapted.
    """
    changes = {name: linear.change for name, linear in linears(model).items() if linear.change is not None}
    if not changes:
        raise ConfigError("the model has no adapter; write it whole")
    spec = decoder_of(model).spec
    if stacks := [name for name, product in linears(model).items() if isinstance(product, Stack) and product.change]:
        raise ConfigError(
            f"{stacks[0]} and others have an adapter for each expert, which not every reader of PEFT's format knows;"
            " write the model whole"
        )
    apart = {part for _, parts in stored_together(spec) for part in parts}
    if found := [name for name in changes if f"{name}.weight" in apart]:
        raise ConfigError(
            f"the model's folder stores {found[0]} and others as one matrix, to which their adapters do not add up;"
            " write the model whole"
        )
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "adapter_model.safetensors"
    there = partial(moved, layout=spec.tower.layouts[0] if spec.tower else {})
    first = next(iter(changes.values()))
    rank = max(change.a.shape[1] for change in changes.values())
    stored = {
        f"base_model.model.{there(name)}.{key}": value
        for name, linear in linears(model).items()
        if linear.change is not None
        for key, value in _peft(linear.change, linear.kernel, rank, first.scale).items()
    }
    write_file(file, stored)
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": rank,
        "lora_alpha": first.scale * rank,
        "lora_dropout": first.dropout,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        **({"use_dora": True} if isinstance(first, Decomposed) else {}),
        # beside an image encoder, whose modules have the same last parts, only full names are unique
        "target_modules": sorted(map(there, changes)) if spec.tower else _targets(set(changes), set(linears(model))),
    }
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    return [file]


def _peft(change: LowRank, kernel: Kernel, rank: int, scale: float) -> dict[str, Parameter]:
    """Return A and B of a change with this rank and scale, which not every reader knows of each module, and its m.

    What is missing in rank is zero, and B has what differs in scale.
    """
    more, by = rank - change.a.shape[1], change.scale / scale
    if not more and by == 1:
        pairs = {"lora_A.weight": change.a.get_value, "lora_B.weight": change.b.get_value}
    else:
        pairs = {
            "lora_A.weight": lambda: jnp.pad(change.a.get_value(), ((0, 0), (0, more))),
            "lora_B.weight": lambda: by * jnp.pad(change.b.get_value(), ((0, more), (0, 0))),
        }
    found = {key: Parameter.of(jax.eval_shape(make), make, transposed=True) for key, make in pairs.items()}
    if isinstance(change, Decomposed):
        make = partial(change.magnitude, kernel)
        found[MAGNITUDE] = Parameter.of(jax.eval_shape(make), make, transposed=False)
    return found


def _targets(chosen: set[str], there: set[str]) -> list[str]:
    """Return modules' names: only the last part if no other module has the same last part, otherwise the full name."""
    words = {name.rpartition(".")[2] for name in chosen}
    if {name for name in there if name.rpartition(".")[2] in words} == chosen:
        return sorted(words)
    return sorted(chosen)


def _config(source: Source | None, spec: Spec, dtype: DType) -> dict[str, Any]:
    """Return the `config.json` of the source, or of a Llama, with the type of the weights.

    Raises:
        ConfigError: if it describes another model.
    """
    config = HuggingFaceConfig(Path(CONFIG), _llama(spec)) if source is None else source.config()
    free = {name: getattr(spec, name) for name in _FREE}
    read = read_spec(config)
    described = attrs.evolve(read, **free)
    differing = [f.name for f in attrs.fields(Spec) if getattr(described, f.name) != getattr(spec, f.name)]
    if differing and source is None:
        raise ConfigError(f"the model is not a Llama ({', '.join(differing)}); name the folder it comes from")
    if differing:
        raise ConfigError(f"{config.file}: does not describe the model to write ({', '.join(differing)})")
    written = config.values if read.tower is None else read.tower.config
    values = {name: value for name, value in written.items() if name != "torch_dtype"}
    return with_old_spellings({**values, "dtype": dtype})


def _llama(spec: Spec) -> dict[str, Any]:
    rope = spec.layers[0].rope
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": spec.vocab_size,
        "hidden_size": spec.width,
        "intermediate_size": spec.ffn,
        "num_hidden_layers": len(spec.layers),
        "num_attention_heads": spec.heads,
        "num_key_value_heads": spec.kv_heads,
        "head_dim": spec.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": spec.norm_epsilon,
        **({} if rope is None else {"rope_theta": rope.theta}),
        "tie_word_embeddings": spec.tied,
        "initializer_range": spec.init_std,
    }
