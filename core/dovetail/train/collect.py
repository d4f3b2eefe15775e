"""From sampled and scored completions to a batch with advantages, in one compiled call."""

from __future__ import annotations

from typing import Any

import attrs
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from dovetail.errors import PlanError
from dovetail.protocols import Weights
from dovetail.train.algorithm import Algorithm
from dovetail.train.forward import by_micro_batch, quantities, values
from dovetail.train.mismatch import corrected, mismatch
from dovetail.train.moment import Moment
from dovetail.train.parts import FieldScope, Floats, Sums, sums


@attrs.frozen(kw_only=True)
class Collector:
    """Runs the forward passes that the plan asks for, then the estimator."""

    algorithm: Algorithm
    graphdef: Any
    critic_graphdef: Any

    def __call__(
        self,
        policy: Weights,
        reference: Weights | None,
        critic: Weights | None,
        batch: dict[str, Array],
        moment: Moment,
        hyper: dict[str, Floats],
        state: Any = None,
    ) -> tuple[dict[str, Array], Sums, Any]:
        """Return the batch with what the update reads, metric sums, and what the estimator remembers from now on.

        `batch` holds the sampled tokens, `scores`, and `greedy_scores`, answers and roles where the plan has them.
        `policy` is the one that sampled; `reference` and `critic` are None where the plan has no such pass, and `state`
        is where the estimator keeps none.
        """
        algorithm = self.algorithm
        batch = batch | self._forwards(policy, reference, critic, batch, hyper)
        metrics: Sums = {}
        constants = moment.fields(algorithm.schedule, hyper)
        scope = FieldScope(batch | constants, algorithm.fields, hyper, at_collection=True)
        if "old_logps" in batch:
            metrics |= mismatch(batch["old_logps"], batch["rollout_logps"], batch["mask"])
        if algorithm.corrections:
            found, measured = self._correct(scope, hyper)
            metrics |= measured
            batch |= found
            scope.update(batch)
        rewards, found = self._token_rewards(scope, moment.kl_coef, hyper)
        metrics |= found
        scope["token_rewards"] = batch["token_rewards"] = rewards
        # what shaping and KL took from the tokens, an estimator that reads whole scores must see too
        scope["scores"] = jnp.sum(jnp.where(batch["mask"], rewards, 0.0), axis=-1)
        scope["state"] = state
        estimate, found = algorithm.advantage(scope, hyper)
        state = algorithm.advantage.next_state(scope, hyper) if algorithm.plan.state else state
        metrics |= sums("advantage", found, batch["mask"])
        batch["advantages"], returns = estimate if isinstance(estimate, tuple) else (estimate, None)
        if algorithm.critic:
            if returns is None:
                raise PlanError(
                    f"advantage {algorithm.advantage.component.name} reads 'values', so a critic is trained, but"
                    " returns no 'returns' for it to learn; return (advantages, returns)"
                )
            batch["returns"] = returns
        if algorithm.selections:
            scope.update(batch)
            found, measured = self._select(scope, hyper)
            batch |= found
            metrics |= measured
        if "schedule_weight" in constants:
            metrics |= sums("schedule", {"weight": constants["schedule_weight"]}, batch["mask"])
        return batch, metrics, state

    def _correct(self, scope: FieldScope, hyper: dict[str, Floats]) -> tuple[dict[str, Array], Sums]:
        """Ask every correction about the batch as sampled: weights multiply, and a token stays if all keep it."""
        mask = scope["mask"]
        is_weights, kept = jnp.where(mask, 1.0, 0.0), mask
        metrics: Sums = {}
        for correction in self.algorithm.corrections:
            (weights, keep), found = correction(scope, hyper)
            metrics |= sums("correction", found, mask)
            is_weights, kept = is_weights * weights, kept & keep
        return {"is_weights": is_weights, "mask": kept}, metrics | corrected(jnp.where(kept, is_weights, 0.0), mask)

    def _select(self, scope: FieldScope, hyper: dict[str, Floats]) -> tuple[dict[str, Array], Sums]:
        """Ask every selection that may rank: weights multiply, and a token stays if all that return a mask keep it."""
        mask = scope["mask"]
        total, kept = jnp.where(mask, 1.0, 0.0), mask
        metrics: Sums = {}
        for selection in self.algorithm.selections:
            chosen, found = selection(scope, hyper)
            metrics |= sums("selection", found, mask)
            weights, keep = chosen if isinstance(chosen, tuple) else (chosen, mask)
            total, kept = total * weights.astype(total.dtype), kept & keep
        metrics |= sums("selection", {"weight_mean": jnp.where(kept, total, 0.0)}, mask)
        return {"selection_weights": total, "mask": kept}, metrics

    def _forwards(
        self,
        policy: Weights,
        reference: Weights | None,
        critic: Weights | None,
        batch: dict[str, Array],
        hyper: dict[str, Floats],
    ) -> dict[str, Array]:
        plan, size, shared = self.algorithm.plan, self.algorithm.micro_batch_size, self.algorithm.rows_per_prompt
        temperature = hyper["train"]["temperature"]
        found: dict[str, Array] = {}
        for prefix, names, weights in (("old_", plan.old, policy), ("ref_", plan.ref, reference)):
            if names and weights is not None:
                wanted = self.algorithm.quantities(names)
                scored = by_micro_batch(
                    lambda micro, w=weights, q=wanted: quantities(
                        self.graphdef, w, micro, q, temperature, reference, shared
                    ),
                    _model_inputs(batch),
                    size,
                )
                found |= {prefix + name: value for name, value in scored.items()}
        if plan.answer:
            wanted = self.algorithm.quantities(plan.answer)
            scored = by_micro_batch(
                lambda micro: quantities(self.graphdef, policy, micro, wanted, temperature, reference),
                _answer_inputs(batch, self.algorithm.group_size),
                size,
            )
            found |= {
                f"answer_{name}": jnp.repeat(value, self.algorithm.group_size, axis=0) for name, value in scored.items()
            }
        if plan.critic and critic is not None:
            found["old_values"] = by_micro_batch(
                lambda micro: {"values": values(self.critic_graphdef, critic, micro, shared)},
                _model_inputs(batch),
                size,
            )["values"]
        return found

    def _token_rewards(
        self, scope: FieldScope, kl_coef: Float[Array, ""], hyper: dict[str, Floats]
    ) -> tuple[Float[Array, "seq token"], Sums]:
        algorithm, mask = self.algorithm, scope["mask"]
        metrics: Sums = {}
        rewards = on_last_token(scope["scores"], mask)
        for shaping in algorithm.reward_shaping:
            scope["token_rewards"] = rewards
            rewards, found = shaping(scope, hyper)
            metrics |= sums("reward_shaping", found, mask)
        if algorithm.kl and algorithm.kl_in == "reward":
            divergence, _ = algorithm.kl(scope, hyper)
            metrics |= sums("kl", {"mean": divergence}, mask)
            rewards = rewards - jnp.where(mask, kl_coef * divergence, 0.0)
        return rewards, metrics


def on_last_token(scores: Float[Array, "seq"], mask: Bool[Array, "seq token"]) -> Float[Array, "seq token"]:
    """Put each completion's score on its last policy token; a row without policy tokens gets none.

    >>> on_last_token(jnp.array([2.0]), jnp.array([[True, True, False, True, False]]))
    Array([[0., 0., 0., 2., 0.]], dtype=float32)
    """
    later = jnp.cumsum(mask[:, ::-1], axis=1)[:, ::-1]
    return jnp.where(mask & (later == 1), scores[:, None], 0.0)


def _model_inputs(batch: dict[str, Array]) -> dict[str, Array]:
    return {name: batch[name] for name in ("prompt_tokens", "prompt_mask", "tokens", "mask")}


def _answer_inputs(batch: dict[str, Array], group_size: int) -> dict[str, Array]:
    """The task's answers in the place of completions, one for each prompt: rows of a prompt are consecutive."""
    renamed = {"answer_tokens": "tokens", "answer_mask": "mask"}
    inputs = {renamed.get(name, name): batch[name] for name in ("prompt_tokens", "prompt_mask", *renamed)}
    return {name: array[::group_size] for name, array in inputs.items()}
