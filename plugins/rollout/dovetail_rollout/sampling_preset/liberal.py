"""The sampling preset `liberal`."""

from __future__ import annotations

import attrs


@attrs.frozen(kw_only=True)
class Liberal:
    """Nearly the model's own distribution, for many different completions.

    Args:
        temperature: divides the logits.
        top_k: the most tokens to choose from.
        top_p: their least probability together, of the `top_k`.
    """

    temperature: float = 0.85
    top_k: int | None = 2000
    top_p: float | None = 1.0
