"""The sampling preset `standard`."""

from __future__ import annotations

import attrs


@attrs.frozen(kw_only=True)
class Standard:
    """Close to the most likely text, with some variety.

    Args:
        temperature: divides the logits.
        top_k: the greatest number of tokens to choose from.
        top_p: the probability, of that of the `top_k`, that the chosen nucleus must hold.
    """

    temperature: float = 0.7
    top_k: int | None = 50
    top_p: float | None = 0.95
