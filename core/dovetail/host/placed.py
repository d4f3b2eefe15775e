"""A rollout engine on other devices than the trainer's."""

from __future__ import annotations

from typing import Any

import attrs

from dovetail.devices.mesh import Devices
from dovetail.protocols import Completions, RolloutEngine, Weights


@attrs.frozen
class PlacedEngine:
    """Calls an engine whose weights are on these devices, under their mesh."""

    engine: RolloutEngine
    devices: Devices

    def generate(self, prompt_tokens: Any, prompt_mask: Any, keys: Any, sampling: Any, **options: Any) -> Completions:
        """Sample; see `RolloutEngine`."""
        with self.devices.use():
            return self.engine.generate(prompt_tokens, prompt_mask, self.devices.whole(keys), sampling, **options)

    def sync(self, weights: Weights, version: int) -> None:
        """Replace the engine's weights."""
        with self.devices.use():
            self.engine.sync(weights, version)

    def close(self) -> None:
        """Close the engine."""
        self.engine.close()
