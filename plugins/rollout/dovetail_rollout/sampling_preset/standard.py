"""The sampling preset `standard`."""

from __future__ import annotations

import attrs


@attrs.frozen(kw_only=True)
class Standard:
    """Close to the likeliest text, with some variety.

    Args:
        temperature: divides the logits.
        top_k: the most tokens to choose from.
        top_p: their least probability together, of the `top_k`.
    """

    temperature: float = 0.7
    top_k: int | None = 50
    top_p: float | None = 0.95
