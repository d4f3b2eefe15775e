"""Turns sampled and scored completions into a batch with advantages, in one compiled call."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import attrs
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from dovetail.arrays import Turns, carried
from dovetail.errors import PlanError
from dovetail.plan.roles import OLD
from dovetail.protocols import Weights
from dovetail.step.algorithm import Algorithm
from dovetail.step.mismatch import corrected, mismatch
from dovetail.step.moment import Moment
from dovetail.step.parts import Floats, Sums, merge, sums
from dovetail.step.scoring import Scoring
from dovetail.step.view import View, check_rows, run_stage


@attrs.frozen(kw_only=True)
class Collector:
    """Runs the stages of a step that process all of its completions at once.

    `graphdefs` has the structure of each role's model; roles that are missing have the policy's structure. If the batch
    `is_scored`, it already contains the quantities that the models compute.
    """

    algorithm: Algorithm
    graphdefs: Mapping[str, Any]
    is_scored: bool = False

    def __call__(
        self,
        weights: dict[str, Weights],
        batch: dict[str, Array],
        moment: Moment,
        hyper: dict[str, Floats],
        state: Any = None,
    ) -> tuple[dict[str, Array], Sums, Any]:
        """Return the batch with the fields that the update reads, metric sums, and the estimator's next state.

        `batch` has the fields that the host's stages provide. `weights` has the weights of every role with forward
        passes in the plan; the policy's are those that sampled. `state` is None if the estimator is stateless.
        """
        algorithm = self.algorithm
        constants = moment.fields(algorithm.schedule, hyper)
        view = View(
            batch | constants | moment.rows(batch) | {"state": state}, algorithm.fields, hyper, at_collection=True
        )
        # the stages of level `batch`, in the order of `STAGES`
        view, of_passes = self._passes(view, weights, hyper)
        view, of_corrections = self._corrections(view, hyper)
        view, of_rewards = self._token_rewards(view, moment, hyper)
        view, of_advantages = self._advantages(view, hyper)
        view, of_masks = self._loss_masks(view, hyper)
        found = (of_passes, of_corrections, of_rewards, of_advantages, of_masks, view.metrics())
        metrics = functools.reduce(merge, found)
        if "schedule_weight" in constants:
            metrics |= sums("schedule", {"weight": constants["schedule_weight"]}, view["mask"])
        left = {name: view[name] for name in view if name not in constants and name not in ("state", "row_keys")}
        if "observed" in left:  # an episode without remaining policy tokens does not count anywhere
            left["observed"] &= jnp.any(left["mask"], axis=1, keepdims=True)
        check_rows(algorithm.plan.calls, left)
        return left, metrics, view["state"]

    def _passes(self, view: View, weights: dict[str, Weights], hyper: dict[str, Floats]) -> tuple[View, Sums]:
        """Add the quantities that the models compute, and exclude the completions that a filter rejects."""
        metrics: Sums = {}
        if not self.is_scored:
            scoring = Scoring(algorithm=self.algorithm, graphdefs=self.graphdefs)
            found, metrics = scoring(weights, view.known(), hyper)
            view = view.take(found)
        ours = f"{OLD}{self.algorithm.plan.compared}"
        if ours in view:
            metrics |= mismatch(view[ours], view["rollout_logps"], view["mask"])
        view, more = run_stage(self.algorithm.at("passes"), view, hyper)
        return view, merge(metrics, more)

    def _corrections(self, view: View, hyper: dict[str, Floats]) -> tuple[View, Sums]:
        """Call every correction on the batch as sampled: weights are multiplied, and a token stays if all keep it."""
        parts, mask = self.algorithm.at("corrections"), view["mask"]
        after, metrics = run_stage(parts, view, hyper)
        if "is_weights" in after:
            is_weights = jnp.where(mask, after["is_weights"], 0.0)
            after = after.take({"is_weights": is_weights})
            metrics |= corrected(jnp.where(after["mask"], is_weights, 0.0), mask)
        return after, metrics

    def _token_rewards(self, view: View, moment: Moment, hyper: dict[str, Floats]) -> tuple[View, Sums]:
        """Place the scores on tokens, add the process rewards, shape the result, and subtract penalties."""
        mask = view["mask"]
        if "turn_rewards" in view:
            earned = jnp.where(view["turn_mask"], view["turn_rewards"], 0.0)
            rewards = on_last_token(view["scores"] - jnp.sum(earned, axis=1), mask)
            rewards = rewards + on_ends_of_turns(earned, view["turns"], mask)
        else:
            rewards = on_last_token(view["scores"], mask)
        if "process_rewards" in view:
            rewards = rewards + carried(view["process_rewards"], mask)
        view, metrics = run_stage(self.algorithm.at("token_rewards"), view.take({"token_rewards": rewards}), hyper)
        rewards = view["token_rewards"]
        for term in self.algorithm.penalties:
            value, measured = term.part(view, hyper)
            metrics |= term.part.sums({"mean": value} | measured, mask)
            rewards = rewards - jnp.where(mask, moment.coefficients[str(term.coefficient)] * value, 0.0)
        return view.take({"token_rewards": rewards}), metrics

    def _advantages(self, view: View, hyper: dict[str, Floats]) -> tuple[View, Sums]:
        """Estimate the advantages from the shaped token rewards, and the state that the estimator keeps.

        Raises:
            PlanError: if a critic is trained, and the estimator returns nothing for it to learn.
        """
        # only an estimator that reads whole scores must also see the changes that shaping and KL made to token rewards
        scores, mask = view["scores"], view["mask"]
        view = view.take({"scores": jnp.sum(jnp.where(mask, view["token_rewards"], 0.0), axis=-1)})
        after, metrics = run_stage(self.algorithm.at("advantages"), view, hyper)
        if reader := self.algorithm.remembering:
            after = after.take({"state": reader.next_state(view, hyper)})
        if self.algorithm.has_critic and "returns" not in after:
            estimator = next(part for part in self.algorithm.at("advantages") if "returns" in part.writes)
            raise PlanError(
                f"advantage {estimator.component.name} reads 'values', so a critic is trained, but returns no 'returns'"
                " for it to learn; return (advantages, returns)"
            )
        return after.take({"scores": scores}), metrics

    def _loss_masks(self, view: View, hyper: dict[str, Floats]) -> tuple[View, Sums]:
        """Call every loss mask that may rank: weights are multiplied, and a token stays if all masks keep it."""
        mask = view["mask"]
        after, metrics = run_stage(self.algorithm.at("loss_masks"), view, hyper)
        if "loss_weights" in after:
            weights = jnp.where(mask, after["loss_weights"], 0.0)
            after = after.take({"loss_weights": weights})
            metrics |= sums("loss_mask", {"weight_mean": jnp.where(after["mask"], weights, 0.0)}, mask)
        return after, metrics


def on_last_token(scores: Float[Array, "seq"], mask: Bool[Array, "seq token"]) -> Float[Array, "seq token"]:
    """Put each completion's score on its last policy token; a row without policy tokens gets none.

    >>> on_last_token(jnp.array([2.0]), jnp.array([[True, True, False, True, False]]))
    Array([[0., 0., 0., 2., 0.]], dtype=float32)
    """
    later = jnp.cumsum(mask[:, ::-1], axis=1)[:, ::-1]
    return jnp.where(mask & (later == 1), scores[:, None], 0.0)


def on_ends_of_turns(
    rewards: Float[Array, "seq turn"], turns: Int[Array, "seq token"], mask: Bool[Array, "seq token"]
) -> Float[Array, "seq token"]:
    """Put the reward of each turn on the last policy token of the turn.

    If corrections have rejected all policy tokens of a turn, its reward goes to the previous turn that has policy
    tokens left, or else to the first such turn, so that the sum of an episode's rewards does not change.

    >>> on_ends_of_turns(jnp.array([[1.0, 2.0]]), jnp.array([[0, 0, 0, 1, 1]]), jnp.array([[1, 1, 0, 1, 0]]) == 1)
    Array([[0., 1., 0., 2., 0.]], dtype=float32)
    """
    by_turn = Turns.of(turns, mask, rewards.shape[1])
    return by_turn.at_ends(carried(rewards, by_turn.live))
