"""Fills a decoder with tensors under their names in a Hugging Face folder."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

import attrs
import jax
import numpy as np
from flax import nnx

from dovetail.errors import ConfigError, listing
from dovetail.protocols import Place
from dovetail_model.huggingface.experts import stacked
from dovetail_model.huggingface.fused import taken_apart
from dovetail_model.huggingface.names import is_transposed, swapped, tensor_name
from dovetail_model.huggingface.safetensors import Readable
from dovetail_model.huggingface.tower import moved
from dovetail_model.source.source import Source
from dovetail_model.spec import Spec
from dovetail_model.transformer import Transformer, abstract

_DERIVED = re.compile(r".*\.rotary_emb\.inv_freq")
"""Tensors in old folders that are computed from `config.json`."""
_HEAD = "score."
"""Prefix of the tensors of a reward model's or critic's head."""


def load(spec: Spec, source: Source, place: Place | None, *, besides: Collection[str] = ()) -> Transformer:
    """Return the decoder of `spec` with the weights of `source`, cast to its `param_dtype`, each at its `place`.

    Tensors named in `besides`, such as those of another head, are ignored.

    All names and shapes are checked before anything is allocated; then tensors are read one at a time.

    Raises:
        ConfigError: if files are missing or truncated, or if tensors are missing, unexpected or of the wrong shape; one
            message lists all of them.
    """
    found = {name: tensor for name, tensor in source.tensors().items() if name not in besides}
    graphdef, state = nnx.split(abstract(spec))
    parameters = dict(nnx.to_flat_state(state))
    spec, found = _as_stored(spec, found)
    names = {path: tensor_name(spec.names, path) for path in parameters}
    shapes = {names[path]: _stored_shape(path, leaf) for path, leaf in parameters.items()}
    found = stacked(taken_apart(found, spec, shapes), shapes)
    _check(source, shapes, found, spec)
    # The largest first: casting and moving need a second copy of a tensor, and at first little else is in memory.
    for path in sorted(parameters, key=lambda path: -parameters[path].size):
        leaf = parameters[path]
        parameters[path] = leaf.replace(_read(found[names[path]], is_transposed(path), leaf, place))
    return nnx.merge(graphdef, nnx.from_flat_state(parameters))


def _as_stored(spec: Spec, found: dict[str, Readable]) -> tuple[Spec, dict[str, Readable]]:
    """Return the spec with the names that this folder has, and the tensors that may be meant for it."""
    if spec.tower is None:
        return spec, found
    rename = partial(moved, layout=spec.tower.layout(found))
    names = {ours: rename(theirs) for ours, theirs in spec.names.items()}
    fused = {rename(whole): tuple(map(rename, parts)) for whole, parts in spec.fused.items()}
    mine = {name: tensor for name, tensor in found.items() if not name.startswith(spec.tower.others)}
    return attrs.evolve(spec, names=names, fused=fused), mine


def _stored_shape(path: Any, leaf: Any) -> tuple[int, ...]:
    return swapped(leaf.shape) if is_transposed(path) else leaf.shape


def _read(tensor: Readable, transposed: bool, leaf: Any, place: Place | None) -> jax.Array:
    """Read, cast and place one tensor."""
    stored = tensor.read()
    view = stored.swapaxes(-1, -2) if transposed else stored
    sharding = None if place is None else place(leaf.get_metadata().get("axes"), view.shape)
    if sharding is None:
        array = jax.device_put(np.asarray(view, leaf.dtype, order="C"))
    else:
        array = jax.make_array_from_callback(
            view.shape, sharding, lambda index: np.asarray(view[index], leaf.dtype, order="C")
        )
    return array.block_until_ready()


def _check(source: Source, wanted: Mapping[str, tuple[int, ...]], found: Mapping[str, Readable], spec: Spec) -> None:
    missing = wanted.keys() - found.keys()
    extra = {name for name in found.keys() - wanted.keys() if not _DERIVED.fullmatch(name)}
    head, embedding = (tensor_name(spec.names, (name,)) for name in ("unembedding", "embedding"))
    if not spec.has_logits:
        extra = {name for name in extra if name != head and not name.startswith(_HEAD)}
    if spec.tied and head in extra and embedding in found:
        _check_tied(source, found[head], found[embedding])
        extra.remove(head)
    misshapen = [
        f"{name} is {list(found[name].shape)} and should be {list(shape)}"
        for name, shape in wanted.items()
        if name in found and found[name].shape != shape
    ]
    problems = [
        f"{what}: {listing(names)}"
        for what, names in (("missing", missing), ("unexpected", extra), ("of the wrong shape", misshapen))
        if names
    ]
    if problems:
        raise ConfigError(f"{source.name}: the tensors do not fit {source.settings}; {'; '.join(problems)}")


def _check_tied(source: Source, head: Readable, embedding: Readable) -> None:
    """Refuse a head that differs from the embedding; some programs store a copy of a tied embedding as the head."""
    if head.shape != embedding.shape or not np.array_equal(head.read(), embedding.read()):
        raise ConfigError(
            f"{source.name}: config.json ties the logits to the embedding, but the folder has another table for them;"
            ' set "tie_word_embeddings": false in config.json if that is meant'
        )
