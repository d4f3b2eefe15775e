"""Replay `recent`: groups of the last steps whose scores differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import attrs
import numpy as np
from annotated_types import Ge
from jaxtyping import Bool

from dovetail.errors import ConfigError
from dovetail.ranges import in_range

Batch = Mapping[str, np.ndarray]

AGE = "age"
"""Steps since the group in a slot was sampled; -1 in an empty slot."""


@attrs.frozen(kw_only=True)
class Recent:
    """A buffer of earlier groups whose scores differ; the newest of them join every step.

        B_k = the newest `capacity` groups G of steps k - `max_age` to k - 1 with max_G s - min_G s > `spread`
        step k learns from its fresh groups and from the newest `groups` of B_k

    with s the scores of a group's completions, process rewards included. A group whose completions all score alike has
    no group-relative advantage, and late in training most do; those that do not are worth a second look, at the cost
    of a forward pass and no sampling. After the rollout replay of Sun et al. 2025, *Improving Data Efficiency for LLM
    Reinforcement Fine-tuning Through Difficulty-targeted Online Data Selection and Rollout Replay*, which keeps the
    newest groups with a mean reward between 0 and 1.

    **Bias.** A replayed group was sampled by an earlier policy μ, so an expectation over the batch is not one under
    today's policy π. Correct for it with the ratio π/μ of each token, truncated (`train.correction = 'tis_token'`, some
    bias for less variance) or without the tokens that are far off (`icepop`), or choose a loss that reads
    `rollout_logps` itself (`decoupled_ppo`). A config with a replay and none of these is refused. No ratio corrects the
    selection: only groups with mixed scores are replayed, so prompts at the edge of what the policy can do weigh more,
    and a group may be replayed in up to `max_age` steps. `mismatch/kl_k1` says how far off the batch is.

    A group is replayed with its prompt, tokens, scores and `rollout_logps` as they were, and with whatever else the
    host put into the batch (process rewards, answers, demonstrations, dataset columns). What models compute
    (`old_logps`, `ref_logps`, advantages, the KL penalty) is computed anew.

    The buffer is part of every checkpoint: `capacity` times the completions of a group, each with some 9 bytes for
    a token of `sampling.max_tokens` and 5 for one of `train.max_prompt_tokens`.

    Args:
        groups: how many earlier groups join each step. Its batch has so many groups more, with empty masks as long as
            there are too few; with `train.mini_batch_size` unset, one update learns from all of them.
        capacity: slots of the buffer, in groups.
        max_age: the greatest age of a group that joins, in steps; one that was sampled in the step before has age 1.
        spread: the difference of scores that a group must exceed, in units of the score.

    Reports `groups`, how many have joined, and `age`, their mean age in steps.

    >>> recent = Recent(groups=1, capacity=2)
    >>> empty = {"mask": np.zeros((2, 3), bool), "scores": np.zeros(2)}
    >>> fresh = {"mask": np.ones((2, 2, 3), bool), "scores": np.array([[1.0, 0.0], [1.0, 1.0]])}
    >>> rng = np.random.default_rng(0)
    >>> first, state, _ = recent.step(recent.init(empty), fresh, rng)
    >>> again, state, metrics = recent.step(state, fresh, rng)
    >>> print(first["mask"].any(), again["scores"], metrics)
    False [[1. 0.]] {'groups': 1.0, 'age': 1.0}
    """

    groups: Annotated[int, Ge(1)] = attrs.field(default=4, validator=in_range)
    capacity: Annotated[int, Ge(1)] = attrs.field(default=64, validator=in_range)
    max_age: Annotated[int, Ge(1)] = attrs.field(default=4, validator=in_range)
    spread: Annotated[float, Ge(0)] = attrs.field(default=0.0, validator=in_range)

    def __attrs_post_init__(self) -> None:
        if self.groups > self.capacity:
            raise ConfigError(
                f"replay.recent.groups = {self.groups} is more than replay.recent.capacity = {self.capacity}; a step"
                " cannot take more groups out of the buffer than it holds"
            )

    def init(self, empty: Batch) -> dict[str, np.ndarray]:
        """Return a buffer without groups."""
        slots = {name: np.zeros((self.capacity, *array.shape), array.dtype) for name, array in empty.items()}
        return slots | {AGE: np.full(self.capacity, -1, np.int32)}

    def step(
        self, state: Batch, fresh: Batch, rng: np.random.Generator
    ) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], dict[str, float]]:
        """Return the groups that join, the buffer with the fresh ones in it, and what has joined."""
        age = np.where((state[AGE] >= 0) & (state[AGE] < self.max_age), state[AGE] + 1, -1).astype(np.int32)
        order = np.argsort(np.where(age < 0, self.max_age + 1, age), kind="stable")
        joining = order[: self.groups]
        live = age[joining] > 0
        # an empty slot may still hold a group that has grown too old, and no field of that may count
        earlier = {name: _or_zeros(live, state[name][joining]) for name in fresh}
        metrics = {"groups": float(live.sum())} | ({"age": float(age[joining][live].mean())} if live.any() else {})
        entering = np.flatnonzero(self._is_mixed(fresh))[: self.capacity]
        staying = order[: self.capacity - len(entering)]
        slots = {name: np.concatenate([fresh[name][entering], state[name][staying]]) for name in fresh}
        ages = np.concatenate([np.zeros(len(entering), np.int32), age[staying]])
        return earlier, slots | {AGE: ages}, metrics

    def _is_mixed(self, fresh: Batch) -> Bool[np.ndarray, "group"]:
        """Whether the scores of a group's completions differ; those with an empty mask have none."""
        mask, scores = fresh["mask"], fresh["scores"]
        if "process_rewards" in fresh:
            scores = scores + np.where(mask, fresh["process_rewards"], 0.0).sum(axis=-1)
        live = mask.any(axis=-1)
        highest = np.where(live, scores, -np.inf).max(axis=1)
        lowest = np.where(live, scores, np.inf).min(axis=1)
        return highest - lowest > self.spread


def _or_zeros(live: Bool[np.ndarray, "group"], array: np.ndarray) -> np.ndarray:
    """Zeros, which masks read as false, in place of groups that are not there."""
    return np.where(live.reshape(-1, *[1] * (array.ndim - 1)), array, np.zeros((), array.dtype))
