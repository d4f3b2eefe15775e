"""The sampling preset `liberal`."""

from __future__ import annotations

import attrs


@attrs.frozen(kw_only=True)
class Liberal:
    """Nearly the model's own distribution, for varied completions.

    Args:
        temperature: divides the logits.
        top_k: the greatest number of tokens to choose from.
        top_p: the share of the probability of the `top_k` tokens that the nucleus must contain.
    """

    temperature: float = 0.85
    top_k: int | None = 2000
    top_p: float | None = 1.0
