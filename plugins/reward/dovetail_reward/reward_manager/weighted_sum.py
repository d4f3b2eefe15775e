"""Reward manager `weighted_sum`: the rewards of a completion, weighted and added up."""

from __future__ import annotations

import attrs
import numpy as np
from jaxtyping import Float

from dovetail.errors import ConfigError, listing, nearest
from dovetail.registry import declares


@declares(per_reward=("weights",))
@attrs.frozen(kw_only=True)
class WeightedSum:
    """A completion's score is the weighted sum of its rewards.

        s_i = ∑_k w_k·r_ik,  over the rewards k that did not abstain on i

    A reward that abstains (NaN in the table) contributes nothing, and the others keep their weights. If all of them
    abstain, the score is NaN, and the completion is excluded from the batch.

    In other libraries, reward managers also control how rewards are called; here each reward does, since it gets all
    completions of a step at once. verl's `naive` and `batch` correspond to this manager (the latter with
    `reward.compute_score.batched`), `prime` to `reward.compute_score.time_limit`, `rate_limited` to an `async` function
    for `reward.compute_score` or to the reward `remote`, and `dapo` to `train.reward_shaping = ['overlong']`.

    Args:
        weights: w by name of the reward; 1 for those not named. None: 1 for all.

    Raises:
        ConfigError: when called, if `weights` names a reward that the run does not have.

    >>> total = WeightedSum(weights={"style": 0.5})
    >>> total(np.array([[1.0, 2.0], [1.0, np.nan], [np.nan, np.nan]]), ("right", "style")).tolist()
    [2.0, 1.0, nan]
    """

    weights: dict[str, float] | None = None

    def __call__(
        self, score_table: Float[np.ndarray, "seq reward"], reward_names: tuple[str, ...]
    ) -> Float[np.ndarray, "seq"]:
        """Return the scores; NaN where every reward abstained."""
        weights = self.weights or {}
        for name in weights:
            if name not in reward_names:
                raise ConfigError(
                    f"reward_manager.weighted_sum.weights names '{name}', which is not a reward of this run."
                    f"{nearest(name, reward_names)} Rewards: {listing(reward_names)}"
                )
        total = np.nansum(score_table * [weights.get(name, 1.0) for name in reward_names], axis=1)
        return np.where(np.isnan(score_table).all(axis=1), np.nan, total)
