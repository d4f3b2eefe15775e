"""The sampling preset `standard`."""

from __future__ import annotations

import attrs


@attrs.frozen(kw_only=True)
class Standard:
    """Close to the most likely text, with some variety.

    Args:
        temperature: divides the logits.
        top_k: the greatest number of tokens to choose from.
        top_p: the share of the probability of the `top_k` tokens that the nucleus must contain.
    """

    temperature: float = 0.7
    top_k: int | None = 50
    top_p: float | None = 0.95
