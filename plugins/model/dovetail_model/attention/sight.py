"""Which keys each token sees, stored in memory linear in the numbers of tokens and keys."""

from __future__ import annotations

from typing import Final, NamedTuple

from flax import struct
from jaxtyping import Array, Bool, Float, Int

NOWHERE: Final = -1
"""The position of a token that sees nothing."""
HIDDEN: Final = 2**31 - 1
"""The position of a key that no token sees."""
LAST: Final = HIDDEN - 1
"""A position after all keys."""


class Places(NamedTuple):
    """The positions of tokens or keys in their rows and, if rows pack several texts, the index of each one's text."""

    at: Int[Array, "row ..."]
    texts: Int[Array, "row ..."] | None = None


@struct.dataclass
class Sight:
    """Which keys of a segment each token sees: those up to its own position, within the window, and of its own text.

        i sees j  ⇔  keys.at[j] ≤ tokens.at[i]  and  tokens.at[i] - keys.at[j] < window  and the texts are equal

    Attributes:
        tokens: [row, sample, token]; a token that sees nothing is `NOWHERE`. Axes of size 1 stand for any size.
        keys: [row, key]; a key that no token sees is `HIDDEN`. If rows pack several texts, each starts at position 0.
        window: number of positions that a token sees, including its own; None means all.
        mask: the result of `visible` as an array, if an implementation needs it, so that layers share it.
    """

    tokens: Places
    keys: Places
    window: int | None = struct.field(pytree_node=False, default=None)
    mask: Bool[Array, "row sample token key"] | None = None

    def visible(self) -> Bool[Array, "row sample token key"]:
        """Return the mask of all pairs; axes of size 1 stand for any size.

        >>> import jax.numpy as jnp
        >>> Sight(Places(jnp.array([[[0, 1]]])), Places(jnp.array([[0, 1, HIDDEN]]))).visible().astype(int)
        Array([[[[1, 0, 0],
                 [1, 1, 0]]]], dtype=int32)
        """
        return sees(self.tokens, self.keys, self.window) if self.mask is None else self.mask

    def with_mask(self) -> Sight:
        """Return a copy whose mask is computed."""
        return self.replace(mask=self.visible())  # pyright: ignore[reportAttributeAccessIssue]


def sees(tokens: Places, keys: Places, window: int | None) -> Bool[Array, "row sample token key"]:
    """Return which keys each token sees."""
    at, of = tokens.at[..., None], keys.at[:, None, None, :]
    seen = of <= at
    if window is not None:
        seen &= at - of < window
    if tokens.texts is not None and keys.texts is not None:
        seen &= tokens.texts[..., None] == keys.texts[:, None, None, :]
    return seen


class Segment(NamedTuple):
    """Keys and values that are stored together (a prefix, or a row's own), and which of them each token sees.

    Keys and values have an entry for each key-value head of each row. If there are fewer rows of keys than of queries,
    each serves the same number (`sample`) of consecutive rows of queries.
    """

    keys: Float[Array, "batch key head_dim"]
    values: Float[Array, "batch key head_dim"]
    sight: Sight

    @property
    def rows(self) -> int:
        """Rows of keys and values."""
        return self.sight.keys.at.shape[0]

    @property
    def kv_heads(self) -> int:
        """Key-value heads of each row."""
        return self.keys.shape[0] // self.rows


def by_head(x: Float[Array, "seq token kv_head head_dim"]) -> Float[Array, "batch token head_dim"]:
    """Put the heads of each row one after another on the first axis, which is how keys and values are stored."""
    return x.swapaxes(1, 2).reshape(-1, x.shape[1], x.shape[3])


def by_query(x: Float[Array, "row kv_head sample *rest"], seq: int) -> Float[Array, "seq kv_head *rest"]:
    """Reshape from rows of keys to rows of queries: each row of keys serves `sample` rows of queries."""
    return x.swapaxes(1, 2).reshape(seq, x.shape[1], *x.shape[3:])


def by_row(x: Float[Array, "seq kv_head *rest"], rows: int) -> Float[Array, "row kv_head sample *rest"]:
    """Undo `by_query`."""
    return x.reshape(rows, -1, *x.shape[1:]).swapaxes(1, 2)


def for_rows(
    queries: Float[Array, "seq token head head_dim"], segment: Segment
) -> Float[Array, "row kv_head sample group token head_dim"]:
    """Return the queries, grouped by the segment's rows and key-value heads."""
    seq, token, _, head_dim = queries.shape
    queries = queries.reshape(segment.rows, seq // segment.rows, token, segment.kv_heads, -1, head_dim)
    return queries.transpose(0, 3, 1, 4, 2, 5)


def as_given(
    mixed: Float[Array, "seq kv_head group token head_dim"], like: Float[Array, "seq token head head_dim"]
) -> Float[Array, "seq token head head_dim"]:
    """Return a result with the shape and type of the queries."""
    seq, token, head, head_dim = like.shape
    return mixed.astype(like.dtype).reshape(seq, head, token, head_dim).swapaxes(1, 2)
