"""Adds earlier completions to the batch of a step."""

from __future__ import annotations

from typing import Final

import attrs
import numpy as np

from dovetail.config import Config
from dovetail.protocols import Replay
from dovetail.registry import Component
from dovetail.step import keys

REPLAY: Final = "replay"

Batch = dict[str, np.ndarray]


@attrs.frozen(kw_only=True)
class Replaying:
    """Appends the groups that the chosen replay returns to the fresh groups of a batch."""

    replay: Replay
    component: Component
    group_size: int
    seed: int

    @classmethod
    def of(cls, config: Config) -> Replaying | None:
        """Return the replay of a run, if it has one."""
        if "train.replay" not in config.choices:
            return None
        choice = config.choice("train.replay")
        size, seed = config.train.group_size, config.run.seed
        return cls(replay=choice.bind(), component=choice.component, group_size=size, seed=seed)

    def init(self, empty: Batch) -> Batch:
        """Return the initial state, for groups with the fields and shapes of `empty`."""
        with self.component.named("init"):
            return self.replay.init(empty)

    def __call__(self, state: Batch, batch: Batch, step: int) -> tuple[Batch, Batch, dict[str, float]]:
        """Return the batch followed by earlier groups, the next state, and the replay's metrics.

        The groups get new ids.

        Raises:
            PluginError: if the earlier groups do not have the fields and shapes of the fresh ones.
        """
        fresh = {
            name: (array := np.asarray(value)).reshape(-1, self.group_size, *array.shape[1:])
            for name, value in batch.items()
        }
        rng = np.random.default_rng([self.seed % 2**32, keys.REPLAY, step])
        with self.component.named("step"):
            earlier, state, *reported = self.replay.step(state, fresh, rng)
            self._check(earlier, fresh)
            metrics = {f"{REPLAY}/{name}": float(value) for each in reported for name, value in each.items()}
        rows = {
            name: np.concatenate([fresh[name], earlier[name]]).reshape(-1, *fresh[name].shape[2:]) for name in fresh
        }
        groups = len(rows["group_ids"]) // self.group_size
        return rows | {"group_ids": np.repeat(np.arange(groups, dtype=np.int32), self.group_size)}, state, metrics

    def _check(self, earlier: Batch, fresh: Batch) -> None:
        for name, array in fresh.items():
            wanted = (self.replay.groups, *array.shape[1:])
            shape = np.shape(earlier[name]) if name in earlier else None
            if shape != wanted:
                found = "does not return" if shape is None else f"returns the shape {shape} and not {wanted} for"
                all_of = f"it returns every field of the fresh groups, for groups = {self.replay.groups} groups"
                how = f"{found} '{name}'; {all_of}, those that are not there with an empty mask"
                raise self.component.wrong(how, "step")
