"""Sampling presets: values for the settings of the same names, `sampling.*` or `eval.*`, where nobody sets them."""

from __future__ import annotations

import attrs


@attrs.frozen(kw_only=True)
class Greedy:
    """The most likely token, always.

    Args:
        temperature: 0 takes the largest logit.
        top_k, top_p: no cut.
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None


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
