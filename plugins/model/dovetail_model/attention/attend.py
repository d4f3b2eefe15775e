"""The formula of attention and the table of its implementations."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Final, Protocol

from jaxtyping import Array, Float

from dovetail_model.attention.blockwise import blockwise
from dovetail_model.attention.cudnn import IN_ORDER, cudnn
from dovetail_model.attention.dense import dense
from dovetail_model.attention.flash_decoding import flash_decoding
from dovetail_model.attention.over_devices import over_devices
from dovetail_model.attention.sight import Segment
from dovetail_model.attention.splash import splash


class Implementation(Protocol):
    """A way to compute `attend`."""

    def __call__(
        self,
        queries: Float[Array, "seq token head head_dim"],
        segments: tuple[Segment, ...],
        *,
        scale: float,
        cap: float | None = None,
    ) -> Float[Array, "seq token head head_dim"]:
        """Return the mixed values."""
        ...


IMPLEMENTATIONS: Final[Mapping[str, Implementation]] = {
    "dense": dense,
    "blockwise": blockwise,
    "cudnn": cudnn,
    IN_ORDER: functools.partial(cudnn, in_order=True),
    "splash": splash,
    "flash_decoding": flash_decoding,
}


def attend(
    queries: Float[Array, "seq token head head_dim"],
    segments: tuple[Segment, ...],
    *,
    scale: float,
    cap: float | None = None,
    how: str = "dense",
    parts: int = 1,
) -> Float[Array, "seq token head head_dim"]:
    """Mix values by the softmax of scaled products: softmax(c tanh(s Q Kᵀ / c)) V over all visible keys.

    Vaswani et al. 2017, "Attention Is All You Need", equation 1, with each key-value head serving `head / kv_head`
    consecutive query heads (Ainslie et al. 2023, "GQA"). s is `scale`, usually 1 / √head_dim; c is `cap`, None for
    infinity (Gemma Team 2024, "Gemma 2", section 2). The softmax is float32 whatever the dtype of the inputs. The
    result of a token that sees no key is meaningless but finite.

    Args:
        queries: the queries of the new tokens.
        segments: keys and values, one segment per place of storage; the row's own come last.
        scale: multiplies the products.
        cap: the soft cap.
        how: the implementation; see `dovetail_model.attention.choice`.
        parts: the number of devices over which the tokens of a row are cut.
    """
    mix = functools.partial(IMPLEMENTATIONS[how], scale=scale, cap=cap)
    return mix(queries, segments) if parts == 1 else over_devices(mix, queries, segments, parts)
