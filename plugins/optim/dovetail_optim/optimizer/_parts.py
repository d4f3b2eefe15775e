"""Which parameters of a model are matrices, and an optimizer for each of two parts of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
import optax
from flax import nnx

Decay = Literal["matrices", "all"]
"""What weight decay is applied to: matrices alone, or every parameter."""

HalfPrecision = Literal["float32", "bfloat16"]
"""In what an average of gradients is kept."""

_VECTOR = re.compile(r"norm|(^|/)(bias|scale)(/|$)", re.IGNORECASE)
_TABLE = re.compile(r"embed|(^|/)(head|lm_head|wpe|wte)(/|$)", re.IGNORECASE)


def is_matrix(name: str, array: Any) -> bool:
    """Tell whether a parameter multiplies activations: two axes or more, and not a norm or a bias by its name.

    Embedding tables and the factors of an adapter are matrices. Axes alone do not tell, since a model may stack the
    norms of its layers in one array.

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
    """Return what optax takes for a mask of weight decay; None for all parameters."""
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
    """Give the parameters that `choose` picks, by name and leaf, to one optimizer and the rest to another.

    As `optax.partition`, but each part is a flat dict of its own: `optax.partition` leaves markers in place of the
    other part's arrays, which break whatever expects arrays there, to measure or to save them.
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
