"""Earlier completions in the batch of a step."""

from __future__ import annotations

from typing import Any, Final

import attrs
import numpy as np

from dovetail.config import Config
from dovetail.protocols import Replay
from dovetail.train import keys

REPLAY: Final = "replay"

Batch = dict[str, np.ndarray]


@attrs.frozen(kw_only=True)
class Replaying:
    """Mixes what the chosen replay gives into a batch, behind the fresh groups."""

    replay: Replay
    group_size: int
    seed: int

    @classmethod
    def of(cls, config: Config) -> Replaying | None:
        """Return the replay of a run, if it has one."""
        if "train.replay" not in config.choices:
            return None
        replay: Any = config.choice("train.replay").bind()
        return cls(replay=replay, group_size=config.train.group_size, seed=config.run.seed)

    def init(self, empty: Batch) -> Batch:
        """Return the first state, for groups like this one."""
        return self.replay.init(empty)

    def __call__(self, state: Batch, batch: Batch, step: int) -> tuple[Batch, Batch]:
        """Return the batch with earlier groups behind it, and the next state; groups are numbered anew."""
        fresh = {
            name: (array := np.asarray(value)).reshape(-1, self.group_size, *array.shape[1:])
            for name, value in batch.items()
        }
        rng = np.random.default_rng([self.seed % 2**32, keys.REPLAY, step])
        earlier, state = self.replay.step(state, fresh, rng)
        rows = {
            name: np.concatenate([fresh[name], earlier[name]]).reshape(-1, *fresh[name].shape[2:]) for name in fresh
        }
        groups = len(rows["group_ids"]) // self.group_size
        return rows | {"group_ids": np.repeat(np.arange(groups, dtype=np.int32), self.group_size)}, state
