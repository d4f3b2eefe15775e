"""The number of completions that a step trains on."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dovetail.config import Config


def replayed_groups(config: Config) -> int:
    """Return how many earlier groups are replayed in each step."""
    if "train.replay" not in config.choices:
        return 0
    return config.choice("train.replay").bind().groups


def rows_of_step(config: Config) -> int:
    """Return how many completions a step trains on: those that it samples, and replayed ones."""
    return (config.train.prompts + replayed_groups(config)) * config.train.group_size


def mini_batch_size(config: Config) -> int:
    """Return how many completions an update trains on."""
    rows = rows_of_step(config)
    return min(config.train.mini_batch_size or rows, rows)
