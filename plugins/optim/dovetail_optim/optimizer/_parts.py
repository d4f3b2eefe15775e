"""Tell which parameters of a model are matrices, and combine two optimizers for different parameters."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
import optax
from flax import nnx

Decay = Literal["matrices", "all"]
"""The parameters that weight decay applies to: only matrices, or all."""

HalfPrecision = Literal["float32", "bfloat16"]
"""The dtype of a running mean of gradients."""

_VECTOR = re.compile(r"norm|(^|/)(bias|scale)(/|$)", re.IGNORECASE)
_TABLE = re.compile(r"embed|(^|/)(head|lm_head|wpe|wte)(/|$)", re.IGNORECASE)


def is_matrix(name: str, array: Any) -> bool:
    """Tell whether a parameter is a matrix: it has at least two axes, and its name is not that of a norm or a bias.

    Embedding tables and the factors of an adapter are matrices. The number of axes alone would not be enough, since a
    model may stack the norms of its layers in one array.

    >>> names = ("blocks/0/ffn/up/kernel", "blocks/ffn_norm/scale", "change/a")
    >>> [is_matrix(name, np.zeros((2, 3))) for name in names]
    [True, False, True]
    """
    return np.ndim(array) >= 2 and not _VECTOR.search(name)


def is_hidden_matrix(name: str, leaf: Any) -> bool:
    """Tell whether a parameter is a matrix between activations: neither an embedding nor the projection to logits."""
    axes = leaf.get_metadata().get("axes") if isinstance(leaf, nnx.Variable) else None
    array = leaf.get_value() if isinstance(leaf, nnx.Variable) else leaf
    return is_matrix(name, array) and not _TABLE.search(name) and "vocab" not in (axes or ())


def decayed(decay: Decay) -> Callable[[Any], Any] | None:
    """Return the weight-decay mask for optax; None if all parameters decay."""
    if decay == "all":
        return None
    return lambda params: jax.tree_util.tree_map_with_path(lambda path, leaf: is_matrix(_name(path), leaf), params)


class InParts(NamedTuple):
    """The states of both parts."""

    chosen: Any
    others: Any


def in_parts(
    choose: Callable[[str, Any], bool], chosen: optax.GradientTransformation, others: optax.GradientTransformation
) -> optax.GradientTransformation:
    """Use one optimizer for the parameters that `choose` selects, by name and leaf, and another for the rest.

    Like `optax.partition`, but the state of each part is a flat dict: `optax.partition` leaves markers in place of the
    other part's arrays, which break code that expects arrays there, such as checkpointing.
    """

    def split(tree: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        leaves = {_name(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree, is_leaf=_is_variable)}
        picked = {name for name, leaf in leaves.items() if choose(name, leaf)}
        return {n: x for n, x in leaves.items() if n in picked}, {n: x for n, x in leaves.items() if n not in picked}

    def init(params: Any) -> InParts:
        mine, rest = split(params)
        return InParts(chosen.init(mine), others.init(rest))

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, InParts]:
        (mine, rest), (own, other) = split(updates), split(params)
        first: Any = chosen.update(mine, state.chosen, own)
        second: Any = others.update(rest, state.others, other)
        found = {**first[0], **second[0]}
        merged = jax.tree_util.tree_map_with_path(lambda path, _: found[_name(path)], updates, is_leaf=_is_variable)
        return merged, InParts(first[1], second[1])

    return optax.GradientTransformation(init, update)


def _is_variable(x: Any) -> bool:
    return isinstance(x, nnx.Variable)


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/").removesuffix("/value")
