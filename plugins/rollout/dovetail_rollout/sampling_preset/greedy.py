"""The sampling preset `greedy`."""

from __future__ import annotations

import attrs


@attrs.frozen(kw_only=True)
class Greedy:
    """Always the most likely token.

    Args:
        temperature: 0 takes the largest logit.
        top_k, top_p: None, as nothing is cut.
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
