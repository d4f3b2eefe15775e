"""A rollout engine on other devices than the trainer's."""

from __future__ import annotations

from typing import Any

import attrs

from dovetail.devices.mesh import Devices
from dovetail.protocols import Completions, Continuing, RolloutEngine, Timed, Turns, Weights


@attrs.frozen
class PlacedEngine:
    """Calls an engine whose weights are on these devices, under their mesh."""

    engine: RolloutEngine
    devices: Devices

    def generate(self, prompt_tokens: Any, prompt_mask: Any, keys: Any, sampling: Any, **options: Any) -> Completions:
        """Sample; see `RolloutEngine`."""
        with self.devices.use():
            return self.engine.generate(prompt_tokens, prompt_mask, self.devices.whole(keys), sampling, **options)

    def turns(self, prompt_tokens: Any, prompt_mask: Any, keys: Any, *limits: Any, **options: Any) -> Turns | None:
        """Sample several turns; see `Continuing`."""
        if not isinstance(self.engine, Continuing):
            return None
        with self.devices.use():
            opened = self.engine.turns(prompt_tokens, prompt_mask, self.devices.whole(keys), *limits, **options)
        return opened and _PlacedTurns(opened, self.devices)

    def sync(self, weights: Weights, version: int) -> None:
        """Replace the engine's weights."""
        with self.devices.use():
            self.engine.sync(weights, version)

    def timings(self) -> dict[str, float]:
        """Return the figures of the last call, if the engine has any; see `Timed`."""
        return self.engine.timings() if isinstance(self.engine, Timed) else {}

    def close(self) -> None:
        """Close the engine."""
        self.engine.close()


@attrs.frozen
class _PlacedTurns:
    """Calls `Turns` under the mesh of their engine."""

    turns: Turns
    devices: Devices

    def first(self) -> Completions:
        """Sample the first turns."""
        with self.devices.use():
            return self.turns.first()

    def next(self, rows: Any, observed: Any, keys: Any) -> Completions:
        """Sample the next turns."""
        with self.devices.use():
            return self.turns.next(rows, observed, self.devices.whole(keys))
