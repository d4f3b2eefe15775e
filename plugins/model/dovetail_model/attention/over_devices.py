"""Attention over rows whose tokens are cut over devices: each computes its own queries, against the keys of all.

Llama Team 2024, "The Llama 3 Herd of Models", section 3.3.2: keys and values are gathered before they are used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec
from jaxtyping import Array, Float, Int, Shaped

from dovetail.devices.mesh import TOKENS, by_device, by_row
from dovetail_model.attention.blockwise import SAVED
from dovetail_model.attention.sight import Places, Segment, Sight

Mix = Callable[[Float[Array, "seq token head head_dim"], tuple[Segment, ...]], Float[Array, "seq token head head_dim"]]

OWN: Final = jax.checkpoint_policies.save_only_these_names(SAVED)
"""What is kept for the backward pass beside a device's own queries, keys and values: not those of whole rows."""

WHOLE: Final[Any] = PartitionSpec()
SECOND, THIRD = PartitionSpec(None, TOKENS), PartitionSpec(None, None, TOKENS)


def by_token(x: Shaped[Array, "seq token *rest"], parts: int) -> Shaped[Array, "row *rest"]:
    """Return one row per token, in the order of `by_device` if tokens are cut."""
    return (x if parts == 1 else by_device(x, parts)).reshape(-1, *x.shape[2:])


def by_seq(x: Shaped[Array, "row *rest"], seq: int, parts: int) -> Shaped[Array, "seq token *rest"]:
    """Undo `by_token`."""
    return x.reshape(seq, -1, *x.shape[1:]) if parts == 1 else by_row(x, seq, parts)


def dealt(x: Shaped[Array, "seq token *rest"], parts: int) -> Shaped[Array, "seq token *rest"]:
    """Deal the tokens of each row to devices, so that all of them see about as many keys.

    Rows are cut into twice as many pieces as there are devices. Each device gets two: one of the first half, and the
    one that is as far from the end, whose tokens see the more keys the fewer those of the other one see.

    >>> import jax.numpy as jnp
    >>> dealt(jnp.arange(8)[None], 2)
    Array([[0, 1, 6, 7, 2, 3, 4, 5]], dtype=int32)
    """
    if parts == 1:
        return x
    pieces = x.reshape(len(x), 2 * parts, -1, *x.shape[2:])
    return jnp.stack([pieces[:, :parts], pieces[:, : parts - 1 : -1]], axis=2).reshape(x.shape)


def collected(x: Shaped[Array, "seq token *rest"], parts: int) -> Shaped[Array, "seq token *rest"]:
    """Undo `dealt` in an array on one device."""
    hands = x.reshape(len(x), parts, 2, -1, *x.shape[2:])
    return jnp.concatenate([hands[:, :, 0], hands[:, ::-1, 1]], axis=1).reshape(x.shape)


def handed_back(x: Shaped[Array, "seq token *rest"], parts: int) -> Shaped[Array, "seq token *rest"]:
    """Undo `dealt` in an array whose tokens are cut over devices; each sends two pieces and gets two."""
    if parts == 1:
        return x

    def own(x: Array, number: Int[Array, "one"]) -> Array:
        low, high = jnp.split(x, 2, axis=1)
        is_even = number[0] % 2 == 0  # of the two pieces that a device has, the index of one is even
        given = jnp.where(is_even, low, high), jnp.where(is_even, high, low)
        return jnp.concatenate([jax.lax.ppermute(x, TOKENS, way) for x, way in zip(given, ways, strict=True)], axis=1)

    # device d gets the pieces 2 d and 2 d + 1, and piece p is held by device p or, from the half on, 2 parts - 1 - p
    ways = [[(min(2 * d + odd, 2 * parts - 1 - 2 * d - odd), d) for d in range(parts)] for odd in (0, 1)]
    numbers = jnp.arange(parts, dtype=jnp.int32)
    return _on_each(own, (SECOND, PartitionSpec(TOKENS)))(x, numbers)


def _on_each(function: Callable[..., Array], places: Any) -> Callable[..., Array]:
    """Call a function on each device that shares a row; the other axes of the mesh are left to the compiler."""
    axes = frozenset((TOKENS,))
    return jax.shard_map(function, in_specs=places, out_specs=SECOND, axis_names=axes, check_vma=False)


def over_devices(
    mix: Mix, queries: Float[Array, "seq token head head_dim"], segments: tuple[Segment, ...], parts: int
) -> Float[Array, "seq token head head_dim"]:
    """Mix values by `mix`, a function of queries and segments, on each of `parts` devices for its part of the tokens.

    Which keys a token sees follows from its position, so that `mix` does the same for a part of a row as for all of it.
    A device has the keys of one layer of all its rows while it computes the layer, and in the backward pass gathers
    them again; their gradients are added up where the keys are. Queries, and keys of the row's own, are `dealt`.
    """
    places = tuple(_places(segment, queries.shape[1], parts) for segment in segments)

    def own(queries: Array, segments: tuple[Segment, ...]) -> Array:
        *before, last = map(_gathered, segments, places)
        # in the order of their positions, blocks of keys that nobody sees are next to each other
        mine = last._replace(keys=collected(last.keys, parts), values=collected(last.values, parts))
        return mix(queries, (*before, mine))

    return jax.checkpoint(_on_each(own, (SECOND, places)), policy=OWN)(queries, segments)


def _places(segment: Segment, token: int, parts: int) -> Segment:
    """Return the part of a segment that a device has; what is not cut evenly is whole on each."""
    keys: Any = WHOLE if segment.keys.shape[1] % parts else SECOND
    sight = segment.sight

    def of_tokens(x: Int[Array, "row sample token ..."] | None) -> Any:
        return None if x is None else THIRD if x.shape[2] == token else WHOLE

    tokens = Places(of_tokens(sight.tokens.at), of_tokens(sight.tokens.texts))
    of_keys: Any = Places(WHOLE, None if sight.keys.texts is None else WHOLE)
    return Segment(keys, keys, Sight(tokens, of_keys, sight.window, of_tokens(sight.mask)))


def _gathered(segment: Segment, places: Segment) -> Segment:
    if places.keys == WHOLE:
        return segment
    keys, values = (jax.lax.all_gather(x, TOKENS, axis=1, tiled=True) for x in segment[:2])
    return segment._replace(keys=keys, values=values)
