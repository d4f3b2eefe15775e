"""Rows that hold several completions of one prompt, one after another, for the forward passes of a model.

Only the model sees packed rows. Fields, losses and aggregations keep one completion in a row; `PACKED` says which
token is at which position of the model's rows. The first token of a completion is predicted by the end of its prompt,
and nothing follows the last token, so a completion of n tokens takes n - 1 positions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Shaped

PACKED: Final = "packed"
"""An extra field of micro-batches, [row, position]: the index of a token among those of all completions, or -1."""

Batch = Mapping[str, Array]


class Rows(NamedTuple):
    """The completions in each row: their indices (for none, the number of completions), and the positions in use."""

    completions: Int[Array, "row segment"]
    used: Int[Array, "row"]


def most_of(tokens: int) -> int:
    """Return the greatest number of completions in a row, if they have at most `tokens` tokens: one per 16 positions.

    Fields at first tokens are computed for so many, whether or not they are there.

    >>> most_of(10), most_of(64), most_of(128), most_of(4096)
    (4, 4, 8, 16)
    """
    return min(16, max(4, tokens // 16))


def positions(lengths: Int[Array, "*row"]) -> Int[Array, "*row"]:
    """Return the positions that completions of these lengths in tokens take; a single token takes an empty one.

    >>> positions(jnp.array([0, 1, 2, 5]))
    Array([0, 1, 1, 4], dtype=int32)
    """
    return jnp.where(lengths > 1, lengths - 1, lengths)


def first_fit(lengths: Int[Array, "seq"], together: int, width: int, most: int) -> Rows:
    """Put completions into rows of `width` positions, the longest first, each into the first row with room for it.

    Only blocks of `together` consecutive completions share rows, at most `most` in one row; every block has `together`
    rows, of which the last ones stay empty. Johnson 1973, "Near-optimal bin packing algorithms": first-fit decreasing
    needs at most 11/9 of the fewest possible rows, and one row more (without the limit on their number).

    >>> first_fit(jnp.array([2, 5, 4, 0]), together=4, width=6, most=2)
    Rows(completions=Array([[1, 0],
           [2, 3],
           [4, 4],
           [4, 4]], dtype=int32), used=Array([5, 3, 0, 0], dtype=int32))
    """
    seq = len(lengths)

    def of_block(sizes: Int[Array, "completion"]) -> tuple[Array, Array]:
        def put(rows: tuple[Array, Array], completion: Array) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
            used, count = rows
            row = jnp.argmax((used + sizes[completion] <= width) & (count < most))
            return (used.at[row].add(sizes[completion]), count.at[row].add(1)), (row, count[row])

        order = jnp.argsort(-sizes, stable=True)
        empty = jnp.zeros(together, jnp.int32)
        (used, _), places = jax.lax.scan(put, (empty, empty), order)
        return jnp.full((together, most), -1, jnp.int32).at[places].set(order.astype(jnp.int32)), used

    found, used = jax.vmap(of_block)(positions(lengths).reshape(-1, together))
    begins = jnp.arange(0, seq, together, dtype=jnp.int32)[:, None, None]
    return Rows(jnp.where(found < 0, seq, found + begins).reshape(-1, most), used.reshape(-1))


def laid_out(lengths: Int[Array, "row segment"], width: int, tokens: int) -> Int[Array, "row position"]:
    """Return `PACKED` for completions of these lengths, one row of `tokens` columns each, in rows of `width` positions.

    >>> laid_out(jnp.array([[3, 2]]), width=4, tokens=5)
    Array([[ 0,  1,  5, -1]], dtype=int32)
    """
    taken = positions(lengths)
    begin = (jnp.cumsum(taken, axis=1) - taken)[:, :, None]
    at = jnp.arange(width, dtype=jnp.int32)[None, None]
    number = jnp.arange(lengths.size, dtype=jnp.int32).reshape(*lengths.shape, 1)
    inside = (at >= begin) & (at < begin + lengths[:, :, None] - 1)
    return jnp.max(jnp.where(inside, number * tokens + at - begin, -1), axis=1)


def predicted(batch: Batch) -> Int[Array, "position"]:
    """Return the index of the token that each hidden state predicts: the first of each completion, then `PACKED`."""
    seq, tokens = batch["tokens"].shape
    packed = batch[PACKED].reshape(-1)
    first = jnp.arange(seq, dtype=jnp.int32) * tokens
    return jnp.concatenate([first, jnp.where(packed < 0, seq * tokens, packed + 1)])


def pack(batch: Batch, array: Shaped[Array, "seq token *rest"]) -> Shaped[Array, "row position *rest"]:
    """Return an array of the completions' tokens in the order of the hidden states."""
    if PACKED not in batch:
        return array
    flat = array.reshape(-1, *array.shape[2:])
    return jnp.take(flat, predicted(batch), axis=0, mode="fill", fill_value=0)[None]


def unpack(batch: Batch, array: Shaped[Array, "row position *rest"]) -> Shaped[Array, "seq token *rest"]:
    """Undo `pack`; there are zeros where a completion has no token."""
    if PACKED not in batch:
        return array
    seq, tokens = batch["tokens"].shape
    flat = jnp.zeros((seq * tokens, *array.shape[2:]), array.dtype)
    return flat.at[predicted(batch)].set(array[0], mode="drop").reshape(seq, tokens, *array.shape[2:])
