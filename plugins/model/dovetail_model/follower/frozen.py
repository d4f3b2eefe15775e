"""Follower `frozen`: weights that never change."""

from __future__ import annotations

from typing import Any, ClassVar

import attrs


@attrs.frozen(kw_only=True)
class Frozen:
    """The weights with which the role began: w_(k+1) = w_k.

    For a reference this is the policy as it was when reinforcement learning began, for a teacher the model of its own.
    They are not part of the checkpoints of a step.
    """

    declares: ClassVar[dict[str, Any]] = {"constant": True}

    def __call__(self, weights: Any) -> Any:
        """Return the weights as they are."""
        return weights
