"""Random episodes of several turns, in the form that estimators read."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

Episodes = dict[str, Any]
GROUP_IDS = np.array([5, -3, 5, 40, -3, 5, 40, -3, 5], np.int32)


def episodes(seed: int = 0, most: int = 4) -> Episodes:
    """Return rows of one to `most` turns of one to three tokens, with observations after all turns except the last.

    Every turn has a reward, which is on its last token; the score is the sum.
    """
    rng = np.random.default_rng(seed)
    width = most * 5
    turns, mask = np.zeros((9, width), np.int32), np.zeros((9, width), bool)
    counts = rng.integers(1, most + 1, 9)
    for row, count in enumerate(counts):
        place = 0
        for turn in range(count):
            wrote, read = rng.integers(1, 4), rng.integers(1, 3)
            mask[row, place : place + wrote] = True
            turns[row, place : place + wrote + read * (turn < count - 1)] = turn
            place += wrote + read
    there = np.arange(most) < counts[:, None]
    earned = np.where(there, rng.normal(size=there.shape), 0).astype(np.float32)
    ends = mask & (np.roll(turns, -1, 1) != turns) | (mask & ~np.roll(mask, -1, 1))
    token_rewards = np.where(ends, np.take_along_axis(earned, turns, axis=1), 0).astype(np.float32)
    found = {
        "scores": earned.sum(axis=1),
        "token_rewards": token_rewards,
        "values": np.where(mask, rng.normal(size=mask.shape), np.nan).astype(np.float32),
        "turns": turns,
        "turn_rewards": earned,
        "turn_mask": there,
        "anchor_ids": np.where(there, rng.integers(0, 3, there.shape), -1).astype(np.int32),
        "group_ids": GROUP_IDS,
        "mask": mask,
    }
    return {name: jnp.asarray(value) for name, value in found.items()}


def read(fields: Episodes, *names: str) -> list[Any]:
    """Return fields in the given order."""
    return [fields[name] for name in names]


def turn_by_turn(fields: Episodes) -> Episodes:
    """Return episodes with one token for each turn, which has the turn's first value and its whole reward."""
    turns, mask = np.asarray(fields["turns"]), np.asarray(fields["mask"])
    there = np.asarray(fields["turn_mask"])
    rewards, values = np.zeros(there.shape, np.float32), np.zeros(there.shape, np.float32)
    for row, turn in np.argwhere(there):
        own = np.flatnonzero(mask[row] & (turns[row] == turn))
        rewards[row, turn] = np.asarray(fields["token_rewards"])[row, own].sum()
        values[row, turn] = np.asarray(fields["values"])[row, own[0]]
    found = {"token_rewards": rewards, "values": values, "mask": there}
    return fields | {name: jnp.asarray(value) for name, value in found.items()}


def spread(by_turn: Any, fields: Episodes) -> np.ndarray:
    """Give every policy token the value of its turn."""
    of_own = np.take_along_axis(np.asarray(by_turn), np.asarray(fields["turns"]), axis=1)
    return np.where(np.asarray(fields["mask"]), of_own, 0)
