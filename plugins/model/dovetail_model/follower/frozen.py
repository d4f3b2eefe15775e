"""Follower `frozen`: weights that never change."""

from __future__ import annotations

from typing import Any, ClassVar

import attrs


@attrs.frozen(kw_only=True)
class Frozen:
    """Keeps the initial weights of the role: w_(k+1) = w_k.

    For a reference these are the policy's weights at the start of reinforcement learning, and for a teacher those of
    its own model. They are not part of the checkpoints.
    """

    declares: ClassVar[dict[str, Any]] = {"constant": True}

    def __call__(self, weights: Any) -> Any:
        """Return the weights unchanged."""
        return weights
