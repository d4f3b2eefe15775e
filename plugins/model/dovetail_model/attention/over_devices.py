"""Attention over rows whose tokens are cut over devices: each computes its own queries, against the keys of all.

Llama Team 2024, "The Llama 3 Herd of Models", section 3.3.2: keys and values are gathered before they are used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax
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


def over_devices(
    mix: Mix, queries: Float[Array, "seq token head head_dim"], segments: tuple[Segment, ...], parts: int
) -> Float[Array, "seq token head head_dim"]:
    """Mix values by `mix`, a function of queries and segments, on each of `parts` devices for its part of the tokens.

    Which keys a token sees follows from its position, so that `mix` does the same for a part of a row as for all of it.
    A device has the keys of one layer of all its rows while it computes the layer, and in the backward pass gathers
    them again; their gradients are added up where the keys are. The last devices have most to do, since their tokens
    see more keys. Other axes of the mesh are left to the compiler.
    """
    places = tuple(_places(segment, queries.shape[1], parts) for segment in segments)

    def own(queries: Array, segments: tuple[Segment, ...]) -> Array:
        return mix(queries, tuple(map(_gathered, segments, places)))

    found = jax.shard_map(
        own, in_specs=(SECOND, places), out_specs=SECOND, axis_names=frozenset((TOKENS,)), check_vma=False
    )
    return jax.checkpoint(found, policy=OWN)(queries, segments)


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
