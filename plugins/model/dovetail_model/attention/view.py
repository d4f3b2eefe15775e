"""The data that all layers of one kind share in a forward pass: rotations, and which keys each token sees."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Int, Key

from dovetail.errors import ConfigError
from dovetail_model.attention.over_devices import by_token, dealt
from dovetail_model.attention.sight import HIDDEN, LAST, NOWHERE, Places, Sight
from dovetail_model.cache import Cache
from dovetail_model.layers.rope import Rope, Rotation, rotation
from dovetail_model.spec import Layer

MASKED: Final = ("dense", "flash_decoding")
"""The implementations that read a mask of all pairs of a token and a key."""


@struct.dataclass
class View:
    """Each token's rotation, which of its row's own keys and of the prefix it sees, and the attention implementation.

    `rotation` is None in layers without rotary positions. `start` is the first position of the cache to write to.
    `keys` are the random keys of dropout, one for each token, or None without it. `how` is the name of the
    implementation. The tokens of a row are cut over `parts` devices, and what has one row per token is in the order of
    `dovetail.devices.mesh.by_device`.
    """

    rotation: Rotation | None
    own: Sight
    prefix: Sight | None
    start: Int[Array, ""] | None
    keys: Key[Array, "row"] | None
    how: str = struct.field(pytree_node=False, default="dense")
    parts: int = struct.field(pytree_node=False, default=1)


class Positions(NamedTuple):
    """The index of each token in its row, counting the prefix, and the index of each key."""

    tokens: Int[Array, "seq token"]
    own: Int[Array, "seq key"]
    prefix: Int[Array, "prompt key"] | None


def positions(
    mask: Bool[Array, "seq token"],
    cache: Cache | None,
    prefix: Cache | None = None,
    texts: Int[Array, "seq token"] | None = None,
) -> Positions:
    """Number the unmasked tokens of each row from 0: prefix, cache, new tokens. Masked ones get a neighbour's number.

    If rows pack several texts, each of them continues the prefix.

    >>> positions(jnp.array([[False, True, True]]), None).tokens
    Array([[0, 0, 1]], dtype=int32)
    >>> positions(jnp.ones((1, 5), bool), None, texts=jnp.array([[0, 0, 1, 1, 1]])).tokens
    Array([[0, 1, 0, 1, 2]], dtype=int32)
    """
    before = jnp.zeros((len(mask), 1), jnp.int32)
    if prefix is not None:
        lengths = jnp.sum(prefix.valid, axis=1, keepdims=True, dtype=jnp.int32)
        before = jnp.repeat(lengths, len(mask) // len(lengths), axis=0)
    own = before + _count(mask if cache is None else cache.validity(mask), texts)
    tokens = own
    if cache is not None:
        tokens = before + jnp.sum(cache.valid, axis=1, keepdims=True, dtype=jnp.int32) + _count(mask)
    return Positions(jnp.maximum(tokens, 0), own, None if prefix is None else _count(prefix.valid))


def _rotation(rope: Rope | None, head_dim: int, at: Int[Array, "row"], width: int) -> Rotation | None:
    """Return the rotation of new tokens in rows of at most `width` tokens.

    Raises:
        ConfigError: if the rows may be longer than the frequencies hold.
    """
    if rope is None:
        return None
    if rope.limit is not None and width > rope.limit:
        raise ConfigError(
            f"rows of up to {width:,} tokens; beyond {rope.limit:,} the rotary positions of this model (rope_type in"
            " config.json) change with the longest row of a batch, which is not supported; shorten prompts or answers"
        )
    return rotation(at, rope.frequencies(head_dim), rope.magnitude)


def _count(mask: Bool[Array, "seq token"], texts: Int[Array, "seq token"] | None = None) -> Int[Array, "seq token"]:
    count = jnp.cumsum(mask, axis=1, dtype=jnp.int32) - 1
    if texts is None:
        return count
    begins = jnp.pad(texts[:, 1:] != texts[:, :-1], ((0, 0), (1, 0)))
    before = count + 1 - mask.astype(jnp.int32)
    return count - jax.lax.cummax(jnp.where(begins, before, 0), axis=1)


def views(
    layers: Iterable[Layer],
    head_dim: int,
    mask: Bool[Array, "seq token"],
    cache: Cache | None,
    prefix: Cache | None,
    keys: Key[Array, "seq token"] | None = None,
    *,
    texts: Int[Array, "seq token"] | None = None,
    how: str = "dense",
    parts: int = 1,
) -> dict[Layer, View]:
    """Return the view of each kind of layer; kinds differ in their rotation and window.

    With a window of w a token sees itself and the w - 1 unmasked tokens before it, wherever they are stored. A masked
    token sees no key of its row. If rows pack several texts, a token sees the prefix and its own text.
    """
    assert texts is None or cache is None, "texts that are packed in a row are not stored in a cache"
    at = positions(mask, cache, prefix, texts)
    tokens = jnp.where(mask, at.tokens, NOWHERE)
    own = jnp.where(mask if cache is None else cache.validity(mask), at.own, HIDDEN)
    start = None if cache is None else cache.filled
    tokens, numbers = dealt(tokens, parts), dealt(at.tokens, parts)
    each = None if keys is None else by_token(dealt(keys, parts), parts)
    width = own.shape[1] + (0 if prefix is None else prefix.valid.shape[1])

    def view(layer: Layer) -> View:
        turned = _rotation(layer.rope, head_dim, by_token(numbers, parts), width)
        of_tokens = None if texts is None else dealt(texts, parts)[:, None]
        sights = [Sight(Places(tokens[:, None], of_tokens), Places(own, texts), layer.window)]
        if prefix is not None and at.prefix is not None:
            held = Places(jnp.where(prefix.valid, at.prefix, HIDDEN))
            rows = len(prefix.valid)
            # without a window every token sees the whole prefix, so one row of its mask is enough
            after = jnp.full((rows, 1, 1), LAST, jnp.int32)
            seeing = after if layer.window is None else numbers.reshape(rows, -1, mask.shape[1])
            sights.append(Sight(Places(seeing), held, layer.window))
        if how in MASKED:
            sights = [sight.with_mask() for sight in sights]
        return View(turned, sights[0], sights[1] if sights[1:] else None, start, each, how, parts)

    return {layer: view(layer) for layer in dict.fromkeys(layers)}
