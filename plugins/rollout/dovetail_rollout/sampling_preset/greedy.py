"""The sampling preset `greedy`."""

from __future__ import annotations

import attrs


@attrs.frozen(kw_only=True)
class Greedy:
    """Always chooses the most likely token.

    Args:
        temperature: 0 chooses the largest logit.
        top_k, top_p: None; the distribution is not cut.
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
